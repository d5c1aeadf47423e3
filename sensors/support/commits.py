"""Known commits: the valid checkpoints of a training and the tiers that hold them, with each record read once.

A commit's record never changes, so what was read of it is kept; of ten thousand, a look reads those that are new. Which
tiers hold a commit is read again when it gets its first copy or loses its first one, and whenever everything is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.record import commits as committed
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Commit

RECORDS = (files.DESIRED, files.CLAIMS, files.COMMITS, files.SET_ASIDE, files.PRUNED, files.EXITS)
COPIES = (files.REPLICAS, files.WITHDRAWN)


def folders(training: Path) -> list[str]:
    """The folders that change when a training's checkpoints, their copies, their scores or its end do."""
    return [f"{training}/{name}" for name in (*RECORDS, *COPIES, files.EVALUATIONS, files.FAULTS, files.TAKEN_BACK)]


@dataclass
class KnownCommits:
    """What was read of one training's commits."""

    records: dict[str, Commit] = field(default_factory=dict)
    holders: dict[str, tuple[tuple[bool, ...], tuple[str, ...]]] = field(default_factory=dict)
    """By commit, whether it has copies and withdrawn ones on record, and the tiers that hold it."""
    _marks: dict[str, tuple[bool, ...]] = field(default_factory=dict)

    def look(self, facts: TrainingFacts) -> Iterator[str]:
        """The names of the valid commits, by step; forgets all others. Opens no record of a commit."""
        names = fence.names_under(facts.folder, facts.claim)
        for table in (self.records, self.holders):
            for gone in table.keys() - set(names):
                del table[gone]
        present = [_names(facts.folder / folder) for folder in COPIES]
        for name in names:
            marks = tuple(name in copies for copies in present)
            if (known := self.holders.get(name)) is not None and known[0] != marks:
                del self.holders[name]
            self._marks[name] = marks
        return iter(names)

    def read(self, facts: TrainingFacts, name: str) -> tuple[Commit, tuple[str, ...]]:
        """A commit that the last look found, and the tiers that hold it. Raises ValueError and OSError."""
        if name not in self.records:
            record = committed.read(facts.folder, name)
            if isinstance(record, str):
                raise ValueError(record)
            self.records[name] = record
        commit = self.records[name]
        marks = self._marks[name]
        if name not in self.holders:
            tiers = replicas.holders(facts.folder, [commit])[name] if any(marks) else (commit.tier,)
            self.holders[name] = (marks, tiers)
        return commit, self.holders[name][1]


def _names(folder: Path) -> set[str]:
    """The names in a folder; none where there is no folder. Raises Unreadable."""
    return set(files.entries(folder) or ())
