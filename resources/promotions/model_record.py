"""Model records: everything that led to a registered checkpoint, by section, and what of it is unknown.

    <durable>/models/<model>/records/<manifest>.json

A record is made from the training's records and the checkpoint's manifest and progress. No weights are read, so it
takes the same time for models of any size.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slipway.resources.trainings import accounts
from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.base import atomic, codec, digest, regular_file, verify
from slipway.trainer.checkpoint.disk import manifest as manifests
from slipway.trainer.checkpoint.disk import progress as progresses
from slipway.trainer.data import mixtures
from slipway.trainer.data.snapshots import Snapshot
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Commit
from slipway.trainer.record.scores import Score

FORMAT = "slipway.model-record/1"
FIELDS: dict[str, tuple[str, ...]] = {
    "data": (
        *("snapshot", "dataset", "sources", "documents", "recipe", "stages", "tokenizer", "splits", "packing"),
        *("seed", "step", "epoch", "samples"),
    ),
    "code": ("revision", "configuration", "command"),
    "environment": ("python", "torch", "packages", "kernel", "variables", "deterministic", "numerics"),
    "topology": ("world", "layout", "batch", "precision", "incarnations"),
    "hardware": ("nodes", "accelerators"),
    "state": ("manifest", "folder", "files", "bytes", "groups", "random_states", "parent", "verified"),
    "search": (),
    "outcome": ("loss", "accuracy", "digest"),
}
"""The fields of a complete record, by section; a section may have more."""
ENVIRONMENT = (
    *("python", "torch", "packages", "kernel", "variables"),
    *("cuda", "cudnn", "nccl", "driver", "image", "image_digest"),
)
"""The fields of the environment in the lineage of a checkpoint (`slipway.trainer.node.runtime_info`)."""
ON_GPUS = ("cuda", "cudnn", "nccl", "driver")
"""Further fields of a complete environment with GPUs."""
IN_A_CONTAINER = ("image_digest",)
"""Further fields of a complete environment in a container."""
UNRECORDED = ("hardware.gpu_uuids", "hardware.gpu_errors", "hardware.network")
"""Fields about GPUs that nothing records yet. They are listed as unknown, but not required of a candidate."""
MAY_BE_EMPTY = ("variables",)
"""Fields that count as known even if they are empty."""
NUMERICS = ("tf32", "cudnn_benchmark")


@dataclass(frozen=True)
class ModelRecord:
    """One checkpoint as a registered model; the sections have the fields in `FIELDS`."""

    model: str
    manifest: str
    data: Mapping[str, Any] = field(default_factory=dict)
    """The snapshot, the origin of its documents, the tokenizer, and the position in the data."""
    code: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    topology: Mapping[str, Any] = field(default_factory=dict)
    """The layout of the training, and all its starts with their nodes, steps and ends."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    """The checkpoint's files; the manifest has the hash of each."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """The origin of the parameters: a sweep and its trial, a schedule, a branch."""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    """The metrics at this step, and their digest, with which a replay can be compared."""


def of_checkpoint(
    model: str,
    facts: TrainingFacts,
    commit: Commit,
    score: Score,
    snapshot: Snapshot,
    durable: Path,
    stages: Mapping[str, Any] = MappingProxyType({}),
) -> ModelRecord:
    """The record of a commit; `stages` describes how its snapshot was made. Reads the manifest and progress only.

    Raises ValueError if the manifest or progress cannot be read.
    """
    folder = durable / commit.folder
    try:
        data = regular_file.read(folder / manifests.MANIFEST)
        verify.check_sha256(data, commit.manifest, folder)
        manifest = manifests.decode(data)
        progress = progresses.decode(regular_file.read(folder / progresses.PROGRESS))
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename}: the file is gone") from None
    specification = facts.specification
    lineage = progress.lineage
    settings: Mapping[str, Any] = progress.config
    metrics = {**progress.metrics, "validation_loss": score.loss, "validation_accuracy": score.accuracy}
    return ModelRecord(
        model,
        commit.manifest,
        data={
            "snapshot": specification.snapshot,
            "dataset": snapshot.dataset,
            "recipe": snapshot.recipe,
            "sources": snapshot.source,
            "tokenizer": specification.tokenizer,
            "documents": dict(snapshot.documents) or _documents(snapshot),
            "stages": dict(stages),
            "splits": {name: _size(split) for name, split in snapshot.splits.items()},
            "packing": _packing(settings),
            "seed": settings.get("run", {}).get("seed"),
            "step": progress.step,
            "epoch": progress.epoch,
            "samples": progress.samples,
            "skipped": progress.skipped,
        },
        code={
            "revision": lineage.get("revision", ""),
            "configuration": digest.sha256(atomic.canonical_json(dict(settings))),
            "command": "python -m slipway.trainer",
            "changes": lineage.get("changes", []),
        },
        environment={
            **{name: lineage[name] for name in ENVIRONMENT if name in lineage},
            "deterministic": bool(settings.get("hardware", {}).get("deterministic", False)),
            "numerics": {
                **{name: settings.get("runtime", {}).get(name) for name in NUMERICS},
                "compile": settings.get("layout", {}).get("compile"),
            },
        },
        topology={
            "world": lineage.get("world"),
            "layout": settings.get("layout"),
            "batch": settings.get("batch"),
            "precision": settings.get("run", {}).get("precision"),
            "incarnations": list(_incarnations(facts)),
        },
        hardware={"nodes": list(facts.nodes), "accelerators": lineage.get("accelerator")},
        state={
            "manifest": commit.manifest,
            "folder": commit.folder,
            "files": len(manifest.files),
            "bytes": manifest.bytes,
            "groups": sorted({name.split("-")[0] for name in manifest.files if name.endswith(".safetensors")}),
            "random_states": len(progress.random_states) or None,
            "parent": _parent(facts),
        },
        search={**facts.run_policy.origin, **({"cause": specification.cause} if specification.cause else {})},
        outcome={
            "loss": score.loss,
            "accuracy": score.accuracy,
            **score.coded,
            "metrics": metrics,
            "digest": digest.sha256(atomic.canonical_json(metrics)),
        },
    )


def verified(record: ModelRecord, damage: str) -> ModelRecord:
    """The record with the result of a verification of every byte; `damage` is "" if all bytes are intact."""
    return replace(record, state={**record.state, "verified": {"at": time.time(), "found": damage or "whole"}})


def not_known(record: ModelRecord) -> list[str]:
    """All unknown fields, including those that nothing records, as `section.field`."""
    return [*missing(record), *(UNRECORDED if _on_gpus(record) else ())]


def missing(record: ModelRecord) -> list[str]:
    """The unknown fields of a complete record, as `section.field`."""
    on_gpus = ON_GPUS if _on_gpus(record) else ()
    in_a_container = IN_A_CONTAINER if record.environment.get("image") else ()
    required = {**FIELDS, "environment": (*FIELDS["environment"], *on_gpus, *in_a_container)}
    return [
        f"{section}.{name}"
        for section, names in required.items()
        for name in names
        if getattr(record, section).get(name) in ((None, "") if name in MAY_BE_EMPTY else (None, "", [], {}))
    ]


def keep(durable: Path, record: ModelRecord) -> None:
    """Store a record, replacing an earlier one of the same checkpoint."""
    codec.replace(_path(durable, record.model, record.manifest), record, FORMAT)


def read(durable: Path, model: str, manifest: str) -> ModelRecord | None:
    """The record of a version; None for a version from before records existed. Raises UndecodableRecord."""
    return codec.read_if_there(_path(durable, model, manifest), ModelRecord, FORMAT)


def _on_gpus(record: ModelRecord) -> bool:
    return record.hardware.get("accelerators") not in (None, "", "cpu")


def _size(split: Any) -> dict[str, int]:
    """The size of a split, in the units of its kind."""
    units = ("documents", "tokens", "images")
    return {"shards": len(split.shards), **{unit: getattr(split, unit) for unit in units if hasattr(split, unit)}}


def _documents(snapshot: Snapshot) -> list[str]:
    """The snapshots of a mixture; empty for any other snapshot."""
    return mixtures.sources_of(snapshot) if isinstance(snapshot, mixtures.MixtureSnapshot) else []


def _packing(settings: Mapping[str, Any]) -> dict[str, Any]:
    """How samples are cut from documents, and their order."""
    packing = {
        "length": settings.get("batch", {}).get("length"),
        "attention": settings.get("model", {}).get("attention"),
        "shuffle_shards": settings.get("run", {}).get("shuffle_shards"),
    }
    return {name: value for name, value in packing.items() if value is not None}


def _parent(facts: TrainingFacts) -> Any:
    """The origin of its weights: another training's checkpoint, given weights, or random weights."""
    specification = facts.specification
    if specification.branch is not None:
        return vars(specification.branch)
    return specification.identity_config.get("init") or "drawn weights"


def _incarnations(facts: TrainingFacts) -> Iterator[dict[str, Any]]:
    """Every start of the training: its token, nodes, ranks and steps, and how it ended."""
    done = _steps(facts.folder)
    run_policy = facts.run_policy
    for claim in fence.claims(facts.folder):
        ended = facts.exit_of(claim.token.incarnation)
        first, last = done.get(str(claim.token), (0, 0))
        yield {
            "token": str(claim.token),
            "nodes": list(claim.nodes),
            "ranks": min(len(claim.nodes), run_policy.max_nodes) * run_policy.ranks_per_node,
            **({"first_step": first, "last_step": last} if last else {}),
            **({"outcome": ended.outcome, "cause": ended.kind, "step": ended.step} if ended else {}),
        }


def _steps(folder: Path) -> dict[str, tuple[int, int]]:
    """The first and the last step of each generation, by its token."""
    step_ranges = dict[str, tuple[int, int]]()
    for name, reading in accounts.folded(folder).segments.items():
        stretches = [stretch for stretch in reading.fold.stretches if stretch.last]
        if stretches:
            step_ranges[name.rsplit(".", 2)[0]] = stretches[0].first, stretches[-1].last
    return step_ranges


def _path(durable: Path, model: str, manifest: str) -> Path:
    return durable / "models" / model / "records" / f"{manifest}.json"
