"""Facts of a night: what the records say happened since a moment, and what waits now. No text, no judgement."""

from dataclasses import dataclass

from slipway.resources.fleet.health.standing import NodeRecord
from slipway.resources.trainings.incident_reports import IncidentReport

NEARLY_FULL = 0.9
"""The share of a tier from which on a person makes room: what the alert for storage that is nearly full warns of."""


@dataclass(frozen=True)
class TrainingEnd:
    """A training that ended and is not to go on. Times here are seconds since the epoch."""

    training: str
    recipe: str
    outcome: str
    """succeeded, stopped or failed."""
    by_person: bool
    """Whether a person asked for the end."""
    reason: str
    kind: str
    """The class of the cause of a failure, of `slipway.trainer.record.causes`."""
    step: int
    """That of its newest checkpoint; 0 without one."""
    at: float


@dataclass(frozen=True)
class RestartAsked:
    """An incarnation that ended so that the next one begins: more nodes, more steps granted, a drained node."""

    training: str
    incarnation: int
    reason: str
    at: float
    kind: str = ""
    """The class of the reason, of `slipway.trainer.record.causes`."""


@dataclass(frozen=True)
class CheckpointDamage:
    """A checkpoint of which a copy, or all copies, were found damaged."""

    training: str
    recipe: str
    step: int
    tiers: tuple[str, ...]
    """Where it is damaged; empty where the record does not say."""
    reason: str
    at: float
    whole_on: tuple[str, ...]
    """The tiers that hold a whole copy."""
    earlier: int | None
    """The step of the newest whole checkpoint of the training; None where it has none."""
    is_champion: bool
    """Whether it is the checkpoint of a champion."""


@dataclass(frozen=True)
class TierFault:
    """A tier could not be read, or did not take copies."""

    tier: str
    trainings: tuple[str, ...]
    reason: str
    away: bool
    """Whether a start had to do without the tier; otherwise it did not take a copy."""
    at: float
    over: bool
    """Whether the tier has taken a checkpoint since."""


@dataclass(frozen=True)
class GateVerdict:
    """What the gate said of a candidate that is not the champion."""

    model: str
    candidate: str
    """The SHA-256 of its checkpoint's manifest."""
    training: str
    failed: tuple[str, ...]
    undecided: str
    """Why it could not be judged; empty when it was."""
    hold: str
    """Why it waits although it passed; empty where it does not."""
    awaits_approval: bool
    by: str
    at: float


@dataclass(frozen=True)
class TierUse:
    """How full a tier was when it was last looked at."""

    name: str
    """The tier; of a node's NVMe, with the node."""
    used: int
    capacity: int
    """Bytes; 0 where it has no limit."""
    seconds_until_full: float | None
    """At the rate of the last days; None for never."""
    at: float

    @property
    def share(self) -> float:
        """Of its capacity; 0 where it has no limit."""
        return self.used / self.capacity if self.capacity else 0.0

    @property
    def is_nearly_full(self) -> bool:
        """Whether a person is to make room now."""
        return self.share >= NEARLY_FULL


@dataclass(frozen=True)
class UnreadableSubject:
    """A subject whose records cannot be read."""

    name: str
    why: str


@dataclass(frozen=True)
class ReportFacts:
    """Everything since `since`, as it was at `until`."""

    since: float
    until: float
    incidents: tuple[IncidentReport, ...] = ()
    """Those since then, and older ones that wait for a person."""
    ends: tuple[TrainingEnd, ...] = ()
    """Those since then, and older ones that failed and were given up."""
    restarts: tuple[RestartAsked, ...] = ()
    damages: tuple[CheckpointDamage, ...] = ()
    tiers: tuple[TierFault, ...] = ()
    verdicts: tuple[GateVerdict, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    """Nodes that are out of service or under suspicion now, or changed their standing since then."""
    use: tuple[TierUse, ...] = ()
    unreadable: tuple[UnreadableSubject, ...] = ()
