"""Training records: what the platform writes about a training, one small JSON file each; the trainer has its own.

A specification is written once and never changed. Terms may be replaced: `policy_changes` says what differs between two
of them, by name, and `takes_effect` when that holds. Of the numbered files of what is desired, the last one holds. Each
has a copy (`slipway.trainer.record.mirrored_record`): without them a training could not go on.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from slipway.trainer.base import atomic, codec, digest
from slipway.trainer.record import mirrored_record, phases

FORMAT, LET_GO_FORMAT = "slipway.training/1", "slipway.let-go/1"
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
"""Terms that the control plane reads at every decision; a job has all others from its start."""
PASSED_OVER = ("origin", "edition")
PolicyChanges = dict[str, tuple[Any, Any]]
"""By the dotted name of a term, its value before and its value now; None for one that is not there."""


@dataclass(frozen=True)
class BranchRecord:
    """The checkpoint of another training that one continues with its full state, and what it has otherwise."""

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
    """By field, the value that a person gave it for this training."""
    revision: str = ""
    """Of the code when it was branched."""


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
    """Distinguishes trainings of the same numbers: a schedule's tick, a person's "again", the name of a branch."""
    branch: BranchRecord | None = None
    """What it continues; None for a training that begins at step 0."""

    @property
    def script(self) -> Mapping[str, Any] | None:
        """The command and the code of a training whose loop is the user's; None for one of our models."""
        script: Mapping[str, Any] | None = self.identity_config.get("script")
        return script

    @property
    def id(self) -> str:
        """The logical id, which outlives every run and every job of the training."""
        decisive = dataclasses.asdict(self)
        decisive["numbers"] = decisive.pop("identity_config")
        if self.branch is None:  # such a training has the id that it had before there were branches
            del decisive["branch"]
        return f"{self.recipe}-{digest.sha256(atomic.canonical_json(decisive))[:12]}"


@dataclass(frozen=True)
class RunPolicy:
    """Where a training may run and how it recovers: what may change while its id stays the same."""

    min_nodes: int
    max_nodes: int
    ranks_per_node: int
    no_progress_seconds: float
    """Without a step for this long, an incarnation is given up."""
    failures_without_checkpoint: int = field(metadata={codec.KEY: "fruitless_incarnations"})
    """After this many failures in a row without a new checkpoint, the training is given up."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Where the parameters came from: a sweep and its trial, a schedule."""
    staging: str = "before"
    """What of the snapshot a node holds; see `slipway.trainer.staging.holding`."""
    nvme_gigabytes: float | None = None
    """The most that its shards may take on a node's NVMe; None for what is free, less a tenth."""
    init: str = ""
    """The folder of the initial weights that the specification names, empty when it names none."""
    operation: Mapping[str, Any] = field(default_factory=dict)
    """The configuration's sections that may change; see `slipway.trainer.config.resolved.OPERATION`."""
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    """What the recipe asks for its pods; see `slipway.recipes.kubernetes`."""
    pending_seconds: float = 600.0
    """A training that waits for longer than this before it runs is reported, with the reason."""
    fields: Sequence[str] = ()
    """FIELD=VALUE: what a person set otherwise than the recipe for this training alone. The rest follows the recipe."""
    edition: int = 1
    """Counts the changes: 1 for the first terms."""
    grow: bool = True
    """Whether it is started again on more nodes when it runs on fewer than `max_nodes` and others are ready."""
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    """Without progress for this long in a phase, an incarnation is given up: deadlines other than the usual ones."""

    policies: Mapping[str, str] = field(default_factory=dict)
    """The recipe's answers to causes, by cause: those that differ from the usual ones."""
    hang_seconds: float = 10.0
    """A step counts as hung after so long at the earliest; its deadline is learned from the steps of the run."""
    owner: str = ""
    """Whose quota its start falls under: the recipe's owner, or the sweep's; empty in terms of an earlier version."""

    def deadline(self, phase: str) -> float:
        """Seconds for which a rank may stay at one place of a phase."""
        return phases.deadline(phase, self.no_progress_seconds, self.phase_seconds)


@dataclass(frozen=True)
class Desired:
    """What should be: "run" or "stop"."""

    want: str
    by: str
    why: str
    at: float
    incarnation: int | None = None
    """The newest incarnation then; None where it was not known, and in a record of an earlier version."""
    by_platform: bool | None = None
    """Whether the platform decided so: it gave the training up, or a sweep ended its trial. `by` does not tell, because
    a person's own command gives up too. None in a record of an earlier version."""


@dataclass(frozen=True)
class CheckpointsLetGo:
    """That retention may remove all checkpoints of a training that nothing refers to."""

    by: str
    why: str
    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class SubmittedJob:
    """That the job of an incarnation was submitted."""

    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class MissingJob:
    """That the job of an incarnation was seen missing."""

    first_seen: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class RefusedStart:
    """That the platform did not let the job of an incarnation through, and lacked what the reason names."""

    reason: str
    count: int
    """How many times in a row."""
    at: float
    """The last time, in seconds since the epoch."""


def create(value: Specification | Desired, path: Path) -> bool:
    """Write a record that is not there yet; False when another writer was first."""
    return mirrored_record.create_only(path, value, FORMAT)


def replace(value: RunPolicy, path: Path) -> None:
    """Write terms in place of those that were there. Raises OSError."""
    mirrored_record.replace(path, value, FORMAT)


def read(kind: type[Record], path: Path) -> Record:
    """The record in a file. Raises ValueError for a training that was never proposed, and as `twins.read`."""
    record = mirrored_record.read_if_there(path, kind, FORMAT)
    if record is None:
        raise ValueError(f"{path}: there is no such training")
    return record


def policy_changes(old: RunPolicy, new: RunPolicy) -> PolicyChanges:
    """What differs, without the origin, which is history, and the edition, which counts changes."""
    before, now = (dict(_flat("", _shown_pair(version))) for version in (old, new))
    names = [*before, *(name for name in now if name not in before)]
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}


def changes_sentence(changed: PolicyChanges) -> str:
    """The changes in one line for a person."""
    return ", ".join(f"{name}: {_value_word(old)} to {_value_word(new)}" for name, (old, new) in changed.items())


def takes_effect(changed: PolicyChanges) -> str:
    """When they take effect: what a running job was started with holds until its training is started again."""
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
