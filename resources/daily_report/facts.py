"""Facts of the daily report: what happened since a point in time, and what waits now, from the records alone."""

from dataclasses import dataclass

from slipway.resources.fleet.health.standing import NodeRecord
from slipway.resources.trainings.incident_reports import IncidentReport

NEARLY_FULL = 0.9
"""The used share of a tier from which a person must make room. The alert for nearly full storage uses it too."""


@dataclass(frozen=True)
class TrainingEnd:
    """A training that ended and will not continue. All times here are seconds since the epoch."""

    training: str
    recipe: str
    outcome: str
    """succeeded, stopped or failed."""
    by_person: bool
    """Whether a person asked for the end."""
    reason: str
    kind: str
    """The cause of a failure, from `slipway.trainer.record.causes`."""
    step: int
    """The step of its newest checkpoint; 0 without one."""
    at: float


@dataclass(frozen=True)
class RestartAsked:
    """An incarnation that ended on purpose, so that the next can begin: for more nodes or steps, or a drained node."""

    training: str
    incarnation: int
    reason: str
    at: float
    kind: str = ""
    """The cause, from `slipway.trainer.record.causes`."""


@dataclass(frozen=True)
class CheckpointDamage:
    """A checkpoint with one or more damaged copies."""

    training: str
    recipe: str
    step: int
    tiers: tuple[str, ...]
    """The tiers with damaged copies; empty if the record does not say."""
    reason: str
    at: float
    whole_on: tuple[str, ...]
    """The tiers that hold an intact copy."""
    earlier: int | None
    """The step of the newest intact checkpoint of the training, or None."""
    is_champion: bool
    """Whether it is the checkpoint of a champion."""


@dataclass(frozen=True)
class TierFault:
    """A tier that could not be read, or did not accept copies."""

    tier: str
    trainings: tuple[str, ...]
    reason: str
    away: bool
    """Whether a training had to start without the tier; if False, the tier did not accept a copy."""
    at: float
    over: bool
    """Whether the tier has accepted a checkpoint since."""


@dataclass(frozen=True)
class GateVerdict:
    """The verdict of the gate on a candidate that is not the champion."""

    model: str
    candidate: str
    """The SHA-256 of its checkpoint's manifest."""
    training: str
    failed: tuple[str, ...]
    undecided: str
    """Why the candidate could not be judged, or ""."""
    hold: str
    """Why the candidate waits although it passed, or ""."""
    awaits_approval: bool
    by: str
    at: float


@dataclass(frozen=True)
class TierUse:
    """How full a tier was at the last measurement."""

    name: str
    """The tier; for an NVMe tier, with the node."""
    used: int
    capacity: int
    """In bytes; 0 for no limit."""
    seconds_until_full: float | None
    """At the rate of the last days; None for never."""
    at: float

    @property
    def share(self) -> float:
        """The used share of the capacity; 0 if there is no limit."""
        return self.used / self.capacity if self.capacity else 0.0

    @property
    def is_nearly_full(self) -> bool:
        """Whether a person must make room now."""
        return self.share >= NEARLY_FULL


@dataclass(frozen=True)
class UnreadableSubject:
    """A subject whose records cannot be read."""

    name: str
    why: str


@dataclass(frozen=True)
class ReportFacts:
    """The facts of the period from `since` to `until`."""

    since: float
    until: float
    incidents: tuple[IncidentReport, ...] = ()
    """The incidents of the period, and older ones that wait for a person."""
    ends: tuple[TrainingEnd, ...] = ()
    """The trainings that ended in the period, and older ones that failed for good."""
    restarts: tuple[RestartAsked, ...] = ()
    damages: tuple[CheckpointDamage, ...] = ()
    tiers: tuple[TierFault, ...] = ()
    verdicts: tuple[GateVerdict, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    """The nodes that are out of service or suspected now, or whose status changed in the period."""
    use: tuple[TierUse, ...] = ()
    unreadable: tuple[UnreadableSubject, ...] = ()
