"""The account of a training: a sequence of time spans without gaps, the use of each, and the cost of interruptions.

`slipway.trainer.record.accounting.bookkeeper` makes it from a history.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.record.accounting.segments import GenerationFold, Stretch
from slipway.trainer.record.claims import Claim, Token
from slipway.trainer.record.incarnation_exit import Exit


@dataclass(frozen=True)
class Wish:
    """A decision that a training should run or stop."""

    run: bool
    at: float
    incarnation: int
    """The newest incarnation then, 0 before the first."""


@dataclass(frozen=True)
class TrainingHistory:
    """All records of a training's times. Times of the control plane are by its own clock."""

    claims: Sequence[Claim]
    exits: Mapping[int, Exit]
    generations: Mapping[Token, GenerationFold]
    wishes: Sequence[Wish] = ()
    """In their order."""
    submitted: Mapping[int, float] = field(default_factory=dict)
    """When the job of an incarnation was submitted."""
    ended: Mapping[int, float] = field(default_factory=dict)
    """When the job of an incarnation ended, by the record of its node or its launcher: not when that was seen."""
    marks: Mapping[Token, Sequence[JournalEvent]] = field(default_factory=dict)
    """Events of other writers than rank 0, by token: detected, incident."""
    away: Sequence[tuple[float, float]] = ()
    """From when to when the control plane was away."""


@dataclass(frozen=True)
class InterruptionCost:
    """An interruption of a generation, and its cost."""

    token: str
    """The generation that it ended, which is the id of the incident."""
    kind: str
    """The cause, of `slipway.trainer.record.causes`; empty if it is not on record."""
    reason: str
    nodes: tuple[str, ...]
    lost: Mapping[str, float]
    """Seconds by bucket."""

    @property
    def seconds(self) -> float:
        return sum(self.lost.values())


@dataclass(frozen=True)
class Account:
    """The use of a training's time, from the first request to its end, or until now."""

    begin: float
    end: float
    stretches: tuple[Stretch, ...]
    """They follow one another without a gap."""
    interruptions: tuple[InterruptionCost, ...]
    downtime_evidence: tuple[str, ...]
    """How it is known that the control plane was away: a sentence each."""
    started: float
    """The begin of the first process; `end` if there was none."""

    @property
    def seconds(self) -> dict[str, float]:
        """By bucket, in all; they sum to the wall clock."""
        sums: dict[str, float] = {}
        for stretch in self.stretches:
            for bucket, spent in stretch.seconds.items():
                sums[bucket] = sums.get(bucket, 0.0) + spent
        return sums

    @property
    def wall(self) -> float:
        return self.end - self.begin


def lost_by(interruptions: Iterable[InterruptionCost], by: str) -> dict[str, float]:
    """Lost seconds by cause (`kind`) or by node; an interruption on several nodes is divided between them."""
    sums: dict[str, float] = {}
    for interruption in interruptions:
        names = (interruption.kind or "unknown",) if by == "kind" else interruption.nodes or ("unknown",)
        for name in names:
            sums[name] = sums.get(name, 0.0) + interruption.seconds / len(names)
    return sums
