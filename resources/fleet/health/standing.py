"""A node's standing: its record, what speaks against it, and the rules of those who judge. Pure.

healthy → suspect → quarantined → diagnosing → released → healthy
                         ↑             ↓
                         └──────── or repair, until a person releases it
joining, a node that is new or was lost → released, or repair
"""

import enum
from dataclasses import dataclass

from slipway.trainer.base.invalid import require


class Standing(enum.StrEnum):
    """Where a node stands."""

    HEALTHY = "healthy"
    JOINING = "joining"
    """It is new, or was lost: it gets no work before its preflight finds no fault."""
    SUSPECT = "suspect"
    """Something speaks against it; it works on."""
    QUARANTINED = "quarantined"
    """It gets no new work, and waits to be diagnosed."""
    DIAGNOSING = "diagnosing"
    RELEASED = "released"
    """It works again, on probation."""
    REPAIR = "repair"
    """The diagnosis found a fault: a person repairs the node and releases it."""

    @property
    def out_of_service(self) -> bool:
        """Whether a node of this standing gets no new work."""
        return self is Standing.JOINING or self.lacks

    @property
    def lacks(self) -> bool:
        """Whether a node of this standing is missing from the fleet: one that joins does not work there yet."""
        return self in (Standing.QUARANTINED, Standing.DIAGNOSING, Standing.REPAIR)


class Weight(enum.StrEnum):
    """How heavily one piece of evidence weighs."""

    SEVERE = "severe"
    """Enough by itself: the GPU fell off the bus, a replica's weights differ."""
    MACHINE = "machine"
    """Makes a suspect; several of them are enough."""
    PROGRAM = "program"
    """A fault that the program may have caused too: it counts when two trainings had it on this node."""


@dataclass(frozen=True)
class Evidence:
    """One thing that speaks against a node."""

    id: str
    """No other evidence has it: an incident's training and id."""
    fault: str
    """What kind of fault: a class of `slipway.trainer.record.causes`, or an Xid."""
    why: str
    """One sentence for a person."""
    weight: Weight
    at: float
    """Seconds since the epoch."""
    training: str = ""
    """The training in which it happened; empty for what the fleet says of the node."""


@dataclass(frozen=True)
class NodeRecord:
    """A node's standing since a transition; also the audit event of that transition."""

    node: str
    number: int
    """Of this node's transitions, from 1 on; 0 for a node that has none."""
    standing: Standing
    was: Standing
    who: str
    why: str
    at: float
    """Seconds since the epoch, by the clock of who recorded it."""
    evidence: tuple[Evidence, ...] = ()
    """What speaks against it now."""
    answered: tuple[Evidence, ...] = ()
    """What spoke against it before it was released: it counts no more."""
    clean: tuple[str, ...] = ()
    """The runs without a fault since it was released."""
    by_hand: bool = False
    """Whether a person put it where it is: then only a person, or new evidence after a release, moves it."""
    applied: bool = True
    """False in a dry run: the record is all that there is, and the node gets work as before."""

    @property
    def out_of_service(self) -> bool:
        """Whether the node really gets no new work."""
        return self.applied and self.standing.out_of_service

    def knows(self, evidence: Evidence) -> bool:
        return evidence.id in {known.id for known in (*self.evidence, *self.answered)}


def unknown(node: str) -> NodeRecord:
    """The record of a node that never had one: it is healthy."""
    return NodeRecord(node, 0, Standing.HEALTHY, Standing.HEALTHY, "", "", 0.0)


@dataclass(frozen=True)
class HealthRules:
    """When a node is taken out of service, and when it comes back."""

    apply: bool = False
    """False is a dry run: standings are recorded, and no node is taken out of service."""
    share: float = 0.1
    """The largest share of the fleet that may be out of service at once; `least` always may."""
    least: int = 2
    """So many nodes may be out of service at once, whatever the share."""
    incidents: int = 2
    """So many pieces of evidence of the machine put a suspect into quarantine."""
    trainings: int = 2
    """A fault that a program may cause counts when so many trainings had it on the node."""
    window_days: float = 7.0
    """Evidence older than this counts no more."""
    hold_seconds: float = 600.0
    """A node stays in quarantine for so long before it is diagnosed, so that a fault that flaps is not forgiven."""
    clean_runs: int = 2
    """So many runs without a fault end the probation."""
    preflight_joining: bool = False
    """Whether a node that is new, or was lost, gets no work before its preflight finds no fault; in a dry run too."""
    preflight_incidents: bool = False
    """Whether a suspect is measured after each incident, once no training runs on it."""

    def __post_init__(self) -> None:
        require(0 < self.share <= 1, "share", "expected more than 0 and at most 1")
        for name in ("least", "incidents", "trainings", "clean_runs"):
            require(getattr(self, name) >= 1, name, "expected 1 or more")
        for name in ("window_days", "hold_seconds"):
            require(getattr(self, name) >= 0, name, "expected 0 or more")

    def limit(self, nodes: int) -> int:
        """How many of a fleet's `nodes` may be out of service at once: never all of them."""
        return min(max(self.least, int(nodes * self.share)), max(0, nodes - 1))
