"""Training records: the small JSON files that the platform writes about a training; the trainer has its own records.

A specification is written once and never changes. A run policy may be replaced: `policy_changes` gives the differences
by name, and `takes_effect` says when they apply. The desired states are numbered, and the last one applies. Each of
these records has a copy (`slipway.trainer.record.mirrored_record`), since a training could not go on without them.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from slipway.trainer.base import atomic, codec, digest
from slipway.trainer.record import mirrored_record, phases

FORMAT = "slipway.training/1"
LET_GO_FORMAT = "slipway.let-go/1"
Record = TypeVar("Record")
AT_ONCE = (
    "no_progress_seconds",
    "hang_seconds",
    "failures_without_checkpoint",
    "pending_seconds",
    "min_nodes",
    "grow",
    "owner",
)
"""The fields of a run policy that the control plane reads at every decision. All others apply from a job's start."""
PASSED_OVER = ("origin", "edition")
PolicyChanges = dict[str, tuple[Any, Any]]
"""The old and the new value of each changed field, by its dotted name; None for a missing value."""


@dataclass(frozen=True)
class BranchRecord:
    """The parent checkpoint that a branch continues with its full state, and the changed fields."""

    training: str
    """The parent's id."""
    store: str
    """The parent's folder, relative to the folder of the training's root."""
    commit: str
    """The name of the parent's commit."""
    step: int
    manifest: str
    """SHA-256 of the checkpoint's manifest."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """The value of each field that a person changed for this training."""
    revision: str = ""
    """The revision of the code when it was branched."""


@dataclass(frozen=True)
class Specification:
    """Everything that decides what a training computes."""

    recipe: str
    identity_config: Mapping[str, Any] = field(metadata={codec.KEY: "numbers"})
    """The resolved sections of the configuration: `resolved.SECTIONS`, or `ScriptSettings`."""
    snapshot: str
    """SHA-256 of the dataset snapshot's manifest."""
    tokenizer: str
    """SHA-256 of the tokenizer; empty for a snapshot of images."""
    cause: str = ""
    """Distinguishes trainings with the same configuration: a schedule's tick, a person's "again", a branch's name."""
    branch: BranchRecord | None = None
    """The checkpoint that it continues; None for a training that starts at step 0."""

    @property
    def script(self) -> Mapping[str, Any] | None:
        """The command and the code of a training by the user's script; None for a built-in model."""
        script: Mapping[str, Any] | None = self.identity_config.get("script")
        return script

    @property
    def id(self) -> str:
        """The logical id, which outlives every run and every job of the training."""
        decisive = dataclasses.asdict(self)
        decisive["numbers"] = decisive.pop("identity_config")
        if self.branch is None:  # keeps the ids from before branches existed
            del decisive["branch"]
        return f"{self.recipe}-{digest.sha256(atomic.canonical_json(decisive))[:12]}"


@dataclass(frozen=True)
class RunPolicy:
    """Where a training may run and how it recovers: everything that may change while its id stays the same."""

    min_nodes: int
    max_nodes: int
    ranks_per_node: int
    no_progress_seconds: float
    """The time without progress after which an incarnation is replaced."""
    failures_without_checkpoint: int = field(metadata={codec.KEY: "fruitless_incarnations"})
    """The number of failures in a row without a new checkpoint after which the training fails for good."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """The origin of the parameters: a sweep and its trial, or a schedule."""
    staging: str = "before"
    """How much of the snapshot a node holds; see `slipway.trainer.staging.holding`."""
    nvme_gigabytes: float | None = None
    """The maximum size of its shards on a node's NVMe; None for the free space, less a tenth."""
    init: str = ""
    """The folder of the initial weights that the specification names, or ""."""
    operation: Mapping[str, Any] = field(default_factory=dict)
    """The configuration's sections that may change; see `slipway.trainer.config.resolved.OPERATION`."""
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    """The recipe's settings of its pods; see `slipway.recipes.kubernetes`."""
    pending_seconds: float = 600.0
    """The waiting time before a start after which the training is reported, with the reason."""
    fields: Sequence[str] = ()
    """FIELD=VALUE: the changes of a person for this training alone. All other fields follow the recipe."""
    edition: int = 1
    """The number of this version of the policy, from 1."""
    grow: bool = True
    """Whether it restarts on more nodes if it runs on fewer than `max_nodes` and others are ready."""
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    """Changed deadlines by phase: the time without progress after which an incarnation is replaced."""

    policies: Mapping[str, str] = field(default_factory=dict)
    """Changed reactions to causes, by cause."""
    hang_seconds: float = 10.0
    """The minimum time after which a step counts as hung; the actual deadline is learned from the run's steps."""
    owner: str = ""
    """The owner of the recipe or sweep, whose quota applies; empty in a policy of an earlier version."""

    def deadline(self, phase: str) -> float:
        """The number of seconds for which a rank may make no progress in a phase."""
        return phases.deadline(phase, self.no_progress_seconds, self.phase_seconds)


@dataclass(frozen=True)
class Desired:
    """The desired state of a training: "run" or "stop"."""

    want: str
    by: str
    why: str
    at: float
    incarnation: int | None = None
    """The newest incarnation at that time; None if it was unknown, and in a record of an earlier version."""
    by_platform: bool | None = None
    """Whether the platform decided this: the training failed for good, or a sweep ended its trial. `by` does not show
    it, since a person's command may run the platform's decision. None in a record of an earlier version."""


@dataclass(frozen=True)
class CheckpointsLetGo:
    """The record that the retention may remove all checkpoints of a training that nothing refers to."""

    by: str
    why: str
    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class SubmittedJob:
    """The record that the job of an incarnation was submitted."""

    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class MissingJob:
    """The record that the job of an incarnation is missing."""

    first_seen: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class RefusedStart:
    """The record that the platform rejected the job of an incarnation, since it lacks what the reason names."""

    reason: str
    count: int
    """The number of rejections in a row."""
    at: float
    """The time of the last one, in seconds since the epoch."""


def create(value: Specification | Desired, path: Path) -> bool:
    """Create a record. Returns False if another writer was first."""
    return mirrored_record.create_only(path, value, FORMAT)


def replace(value: RunPolicy, path: Path) -> None:
    """Replace the run policy. Raises OSError."""
    mirrored_record.replace(path, value, FORMAT)


def read(kind: type[Record], path: Path) -> Record:
    """The record in a file. Raises ValueError if the training was never proposed, and as `mirrored_record`."""
    record = mirrored_record.read_if_there(path, kind, FORMAT)
    if record is None:
        raise ValueError(f"{path}: there is no such training")
    return record


def policy_changes(old: RunPolicy, new: RunPolicy) -> PolicyChanges:
    """The differences, without the origin and the edition, which are no settings."""
    before, now = (dict(_flat("", _shown_pair(version))) for version in (old, new))
    names = [*before, *(name for name in now if name not in before)]
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}


def changes_sentence(changed: PolicyChanges) -> str:
    """The changes in one line for a person."""
    return ", ".join(f"{name}: {_value_word(old)} to {_value_word(new)}" for name, (old, new) in changed.items())


def takes_effect(changed: PolicyChanges) -> str:
    """When the changes take effect. A running job keeps the values with which it was started."""
    later = [name for name in changed if name not in AT_ONCE]
    if not later:
        return "at once"
    if len(later) == len(changed):
        return "when the next incarnation starts"
    return f"at once, but {', '.join(later)} when the next incarnation starts"


def _shown_pair(run_policy: RunPolicy) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(run_policy).items() if name not in PASSED_OVER}


def _flat(above: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _flat(f"{above}{name}.", item)
        else:
            yield f"{above}{name}", list(item) if isinstance(item, tuple) else item


def _value_word(value: Any) -> str:
    return "nothing" if value in (None, "", {}, []) else json.dumps(value, ensure_ascii=False)
