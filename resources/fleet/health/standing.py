"""A node's health status: its record, the evidence against it, and the rules for changes. Pure.

healthy → suspect → quarantined → diagnosing → released → healthy
                         ↑             ↓
                         └──────── or repair, until a person releases it
joining (a node that is new or was lost) → released, or repair
"""

import enum
from dataclasses import dataclass

from slipway.trainer.base.invalid import require


class Standing(enum.StrEnum):
    """The health status of a node."""

    HEALTHY = "healthy"
    JOINING = "joining"
    """It is new or was lost, and gets no work before a preflight without a fault."""
    SUSPECT = "suspect"
    """There is evidence against it, but it still gets work."""
    QUARANTINED = "quarantined"
    """It gets no new work, and waits for its diagnosis."""
    DIAGNOSING = "diagnosing"
    RELEASED = "released"
    """It gets work again, on probation."""
    REPAIR = "repair"
    """The diagnosis found a fault. A person must repair the node and release it."""

    @property
    def out_of_service(self) -> bool:
        """Whether a node with this status gets no new work."""
        return self is Standing.JOINING or self.lacks

    @property
    def lacks(self) -> bool:
        """Whether a node with this status is missing from the fleet. A joining node is not: it was never part of it."""
        return self in (Standing.QUARANTINED, Standing.DIAGNOSING, Standing.REPAIR)


class Weight(enum.StrEnum):
    """The weight of a piece of evidence."""

    SEVERE = "severe"
    """Sufficient for quarantine: the GPU fell off the bus, or a replica's weights differ."""
    MACHINE = "machine"
    """Sufficient for suspicion; several of them are sufficient for quarantine."""
    PROGRAM = "program"
    """The program may also have caused the fault. It counts only if two trainings had it on this node."""


@dataclass(frozen=True)
class Evidence:
    """One piece of evidence against a node."""

    id: str
    """A unique id, such as an incident's training and id."""
    fault: str
    """The kind of fault: a cause from `slipway.trainer.record.causes`, or an Xid."""
    why: str
    """One sentence for a person."""
    weight: Weight
    at: float
    """Seconds since the epoch."""
    training: str = ""
    """The training in which it happened; "" if the fleet reports the fault."""


@dataclass(frozen=True)
class NodeRecord:
    """A node's health status since a transition; also the audit record of that transition."""

    node: str
    number: int
    """The number of this transition of the node, from 1; 0 for a node without any."""
    standing: Standing
    was: Standing
    who: str
    why: str
    at: float
    """Seconds since the epoch, by the clock of the recording process."""
    evidence: tuple[Evidence, ...] = ()
    """The current evidence against the node."""
    answered: tuple[Evidence, ...] = ()
    """The evidence from before its release, which no longer counts."""
    clean: tuple[str, ...] = ()
    """The runs without a fault since it was released."""
    by_hand: bool = False
    """Whether a person set the status. Then only a person, or new evidence after a release, can change it."""
    applied: bool = True
    """False in a dry run: the status is only recorded, and the node still gets work."""

    @property
    def out_of_service(self) -> bool:
        """Whether the node actually gets no new work."""
        return self.applied and self.standing.out_of_service

    def knows(self, evidence: Evidence) -> bool:
        return evidence.id in {known.id for known in (*self.evidence, *self.answered)}


def unknown(node: str) -> NodeRecord:
    """The record of a node without records, which is healthy."""
    return NodeRecord(node, 0, Standing.HEALTHY, Standing.HEALTHY, "", "", 0.0)


@dataclass(frozen=True)
class HealthRules:
    """When a node is taken out of service, and when it comes back."""

    apply: bool = False
    """False is a dry run: the status of nodes is recorded, but no node is taken out of service."""
    share: float = 0.1
    """The largest share of the fleet that may be out of service at the same time; `least` nodes always may."""
    least: int = 2
    """The number of nodes that may be out of service at the same time, even if it exceeds `share`."""
    incidents: int = 2
    """The number of machine faults after which a suspect goes into quarantine."""
    trainings: int = 2
    """The number of trainings that must have the same fault on a node if a program may also cause that fault."""
    window_days: float = 7.0
    """The age in days at which evidence no longer counts."""
    hold_seconds: float = 600.0
    """The time in quarantine before the diagnosis, so that an intermittent fault can show again."""
    clean_runs: int = 2
    """The number of runs without a fault that end the probation."""
    preflight_joining: bool = False
    """Whether a new or returning node gets no work before a preflight without a fault; applies in a dry run too."""
    preflight_incidents: bool = False
    """Whether a suspect is measured after each incident, once no training runs on it."""

    def __post_init__(self) -> None:
        require(0 < self.share <= 1, "share", "expected more than 0 and at most 1")
        for name in ("least", "incidents", "trainings", "clean_runs"):
            require(getattr(self, name) >= 1, name, "expected 1 or more")
        for name in ("window_days", "hold_seconds"):
            require(getattr(self, name) >= 0, name, "expected 0 or more")

    def limit(self, nodes: int) -> int:
        """How many of a fleet's `nodes` may be out of service at the same time; never all of them."""
        return min(max(self.least, int(nodes * self.share)), max(0, nodes - 1))
