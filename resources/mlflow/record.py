"""The record of a model: all that led to a registered checkpoint, by section, and which of it is not known.

    <durable>/models/<model>/records/<manifest>.json

It is made from the training's records and the checkpoint's own manifest and progress: no weights are read, so that it
takes as long for a model of a billion parameters as for one of a thousand.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resources.trainings.facts import TrainingFacts
from trainer.base import atomic, codec, digest, verify
from trainer.checkpoint.disk import manifest as manifests
from trainer.checkpoint.disk import progress as progresses
from trainer.data.snapshots import Snapshot
from trainer.record import fence
from trainer.record.fence import Commit
from trainer.record.scores import Score

FORMAT = "slipway.model-record/1"
FIELDS: dict[str, tuple[str, ...]] = {
    "data": ("snapshot", "dataset", "sources", "recipe", "tokenizer", "splits", "seed", "step", "epoch", "samples"),
    "code": ("revision", "configuration", "command"),
    "environment": ("python", "torch", "packages", "kernel", "deterministic"),  # and more on GPUs and in containers
    "topology": ("world", "layout", "batch", "precision", "incarnations"),
    "hardware": ("nodes", "accelerators"),
    "state": ("manifest", "folder", "files", "bytes", "groups"),
    "search": (),
    "outcome": ("loss", "accuracy", "digest"),
}
"""What a complete record has, by section; a section may have more."""
ENVIRONMENT = ("python", "torch", "packages", "kernel", "cuda", "cudnn", "nccl", "driver", "image", "image_digest")
"""What the lineage of a checkpoint says of its environment (`trainer.node.environment`)."""
ON_GPUS, IN_A_CONTAINER = ("cuda", "cudnn", "nccl", "driver"), ("image_digest",)
"""What a complete environment has besides, where there are GPUs, and where there is an image."""


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
    model: str, facts: TrainingFacts, commit: Commit, score: Score, snapshot: Snapshot, durable: Path
) -> ModelRecord:
    """The record of a commit. Reads its manifest and its progress, and no weights.

    Raises ValueError for a checkpoint whose manifest or progress cannot be read.
    """
    folder = durable / commit.folder
    try:
        data = (folder / manifests.MANIFEST).read_bytes()
        verify.check_sha256(data, commit.manifest, folder)
        manifest = manifests.decode(data)
        progress = progresses.decode((folder / progresses.PROGRESS).read_bytes())
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename}: it is gone") from None
    specification, lineage = facts.specification, progress.lineage
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
            "splits": {name: len(split.shards) for name, split in snapshot.splits.items()},
            "seed": settings.get("run", {}).get("seed"),
            "step": progress.step,
            "epoch": progress.epoch,
            "samples": progress.samples,
            "skipped": progress.skipped,
        },
        code={
            "revision": lineage.get("revision", ""),
            "configuration": digest.sha256(atomic.canonical_json(dict(settings))),
            "command": "python -m trainer",
            "changes": lineage.get("changes", []),
        },
        environment={
            **{name: lineage[name] for name in ENVIRONMENT if name in lineage},
            "deterministic": bool(settings.get("hardware", {}).get("deterministic", False)),
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
            "parent": vars(specification.branch) if specification.branch else specification.numbers.get("init"),
        },
        search={**facts.terms.origin, **({"cause": specification.cause} if specification.cause else {})},
        outcome={
            "loss": score.loss,
            "accuracy": score.accuracy,
            **score.coded,
            "metrics": metrics,
            "digest": digest.sha256(atomic.canonical_json(metrics)),
        },
    )


def missing(record: ModelRecord) -> list[str]:
    """The fields of a complete record that are not known, as `section.field`."""
    on_gpus = ON_GPUS if record.hardware.get("accelerators") not in (None, "", "cpu") else ()
    in_a_container = IN_A_CONTAINER if record.environment.get("image") else ()
    wanted = {**FIELDS, "environment": (*FIELDS["environment"], *on_gpus, *in_a_container)}
    return [
        f"{section}.{name}"
        for section, names in wanted.items()
        for name in names
        if getattr(record, section).get(name) in (None, "", [], {})
    ]


def keep(durable: Path, record: ModelRecord) -> None:
    """Keep a record; the one of the same checkpoint that was made before is replaced."""
    codec.replace(_path(durable, record.model, record.manifest), record, FORMAT)


def read(durable: Path, model: str, manifest: str) -> ModelRecord | None:
    """The record of a version; None for one that was registered before there were any. Raises UndecodableRecord."""
    return codec.read_if_there(_path(durable, model, manifest), ModelRecord, FORMAT)


def _incarnations(facts: TrainingFacts) -> Iterator[dict[str, Any]]:
    """Every start of the training: its token, its nodes, and how it ended."""
    for claim in fence.claims(facts.folder):
        ended = facts.exit_of(claim.token.incarnation)
        yield {
            "token": str(claim.token),
            "nodes": list(claim.nodes),
            **({"outcome": ended.outcome, "cause": ended.kind, "step": ended.step} if ended else {}),
        }


def _path(durable: Path, model: str, manifest: str) -> Path:
    return durable / "models" / model / "records" / f"{manifest}.json"
