"""The record of a model: all that led to a registered checkpoint, by section, and which of it is not known.

    <durable>/models/<model>/records/<manifest>.json

It is made from the training's records and the checkpoint's own manifest and progress: no weights are read, so that it
takes as long for a model of a billion parameters as for one of a thousand.
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
"""What a complete record has, by section; a section may have more."""
ENVIRONMENT = (
    *("python", "torch", "packages", "kernel", "variables"),
    *("cuda", "cudnn", "nccl", "driver", "image", "image_digest"),
)
"""What the lineage of a checkpoint says of its environment (`slipway.trainer.node.runtime_info`)."""
ON_GPUS, IN_A_CONTAINER = ("cuda", "cudnn", "nccl", "driver"), ("image_digest",)
"""What a complete environment has besides, where there are GPUs, and where there is an image."""
UNRECORDED = ("hardware.gpu_uuids", "hardware.gpu_errors", "hardware.network")
"""What is not recorded of GPUs yet: listed as not known, and asked of no candidate."""
MAY_BE_EMPTY = ("variables",)
"""Fields that are known also where there is nothing of them."""
NUMERICS = ("tf32", "cudnn_benchmark")


@dataclass(frozen=True)
class ModelRecord:
    """One checkpoint as a registered model; every section by the names of `FIELDS`."""

    model: str
    manifest: str
    data: Mapping[str, Any] = field(default_factory=dict)
    """Snapshot, where its documents came from, tokenizer, and the position in the data."""
    code: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    topology: Mapping[str, Any] = field(default_factory=dict)
    """How the training was divided, and every start of it: on which nodes, from which step, and how it ended."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    """The checkpoint's files; each has its hash in the manifest."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Where the parameters came from: a sweep and its trial, a schedule, a branch."""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    """The figures at this step, and their digest, against which a replay can be held."""


def of_checkpoint(
    model: str,
    facts: TrainingFacts,
    commit: Commit,
    score: Score,
    snapshot: Snapshot,
    durable: Path,
    stages: Mapping[str, Any] = MappingProxyType({}),
) -> ModelRecord:
    """The record of a commit; `stages` say how its snapshot was made. Reads its manifest and progress, and no weights.

    Raises ValueError for a checkpoint whose manifest or progress cannot be read.
    """
    folder = durable / commit.folder
    try:
        data = regular_file.read(folder / manifests.MANIFEST)
        verify.check_sha256(data, commit.manifest, folder)
        manifest = manifests.decode(data)
        progress = progresses.decode(regular_file.read(folder / progresses.PROGRESS))
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename}: it is gone") from None
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
    """The record with what a verification of every byte has just found; `damage` is empty where all are whole."""
    return replace(record, state={**record.state, "verified": {"at": time.time(), "found": damage or "whole"}})


def not_known(record: ModelRecord) -> list[str]:
    """All that is not known, also what nobody records, as `section.field`."""
    return [*missing(record), *(UNRECORDED if _on_gpus(record) else ())]


def missing(record: ModelRecord) -> list[str]:
    """The fields of a complete record that are not known, as `section.field`."""
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
    """Keep a record; the one of the same checkpoint that was made before is replaced."""
    codec.replace(_path(durable, record.model, record.manifest), record, FORMAT)


def read(durable: Path, model: str, manifest: str) -> ModelRecord | None:
    """The record of a version; None for one that was registered before there were any. Raises UndecodableRecord."""
    return codec.read_if_there(_path(durable, model, manifest), ModelRecord, FORMAT)


def _on_gpus(record: ModelRecord) -> bool:
    return record.hardware.get("accelerators") not in (None, "", "cpu")


def _size(split: Any) -> dict[str, int]:
    """How much a split has, in the units of its kind."""
    units = ("documents", "tokens", "images")
    return {"shards": len(split.shards), **{unit: getattr(split, unit) for unit in units if hasattr(split, unit)}}


def _documents(snapshot: Snapshot) -> list[str]:
    """Of a mixture: the snapshots whose documents it has."""
    return mixtures.sources_of(snapshot) if isinstance(snapshot, mixtures.MixtureSnapshot) else []


def _packing(settings: Mapping[str, Any]) -> dict[str, Any]:
    """How samples are cut from documents, and in what order they come."""
    packing = {
        "length": settings.get("batch", {}).get("length"),
        "attention": settings.get("model", {}).get("attention"),
        "shuffle_shards": settings.get("run", {}).get("shuffle_shards"),
    }
    return {name: value for name, value in packing.items() if value is not None}


def _parent(facts: TrainingFacts) -> Any:
    """What it began with: another training's checkpoint, given weights, or weights that were drawn."""
    specification = facts.specification
    if specification.branch is not None:
        return vars(specification.branch)
    return specification.identity_config.get("init") or "drawn weights"


def _incarnations(facts: TrainingFacts) -> Iterator[dict[str, Any]]:
    """Every start of the training: its token, nodes and ranks, the steps that it did, and how it ended."""
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
        if steps := [stretch for stretch in reading.fold.stretches if stretch.last]:
            step_ranges[name.rsplit(".", 2)[0]] = steps[0].first, steps[-1].last
    return step_ranges


def _path(durable: Path, model: str, manifest: str) -> Path:
    return durable / "models" / model / "records" / f"{manifest}.json"
