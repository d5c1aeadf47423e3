"""Incidents: interruptions of a training's steps, with one record each; the first process that notices one writes it.

An incident that ends a generation has the generation's token as its id. So the supervisor of a node and the control
plane, which may both notice it, write one record and not two: the first one stands. The id of an incident that the
generation survives (a batch is skipped, a node is slow) has the token and the step, and a number if there are several
of one step.

    incidents/<token>.json            an incident that ended the generation
    incidents/<token>.<step>.json     one that it survived
    incidents/<token>.<step>.1.json   another one of the same step
    incidents/<id>/                   the evidence, a file each
"""

from dataclasses import dataclass, replace
from pathlib import Path

from slipway.trainer.base import codec
from slipway.trainer.record import files

FORMAT = "slipway.incident/1"


@dataclass(frozen=True)
class IncidentRecord:
    """An interruption of the steps. Times are seconds since the epoch, by the clock of the node that noticed it."""

    token: str
    """The generation in which it happened."""
    kind: str
    """The class of its cause, of `slipway.trainer.record.causes`."""
    reason: str
    """One sentence for a person."""
    action: str
    """The platform's action, in a few words: restarted the rank, skipped the batch."""
    by: str
    """Who noticed it."""
    at: float
    step: int
    """The last step that was done."""
    ranks: tuple[int, ...] = ()
    """The ranks that failed first, as far as they are known."""
    nodes: tuple[str, ...] = ()
    """The nodes of these ranks, as far as they are known."""
    survived: bool = False
    """Whether the generation went on."""
    number: int = 0
    """The number among the survived incidents of one step; 0 for the first, and in an earlier version."""

    @property
    def id(self) -> str:
        number = f".{self.number}" if self.number else ""
        return f"{self.token}.{self.step:09d}{number}" if self.survived else self.token


def note(store: Path, incident: IncidentRecord) -> bool:
    """Write the record, unless there is one with its id; returns whether it did. Raises OSError."""
    return codec.create_only(files.named(store, files.INCIDENTS, incident.id), incident, FORMAT)


def note_survived(store: Path, incident: IncidentRecord) -> IncidentRecord:
    """Write the record of one that the generation survives, beside others of its step; it is returned with its number.

    Raises OSError.
    """
    while not note(store, incident):
        incident = replace(incident, number=incident.number + 1)
    return incident


def names(store: Path, incarnation: int | None = None) -> list[str]:
    """The ids of a training's incidents, of one incarnation or of all, in order. Raises Unreadable."""
    incident_names = files.names(store, files.INCIDENTS)
    return (
        incident_names
        if incarnation is None
        else [name for name in incident_names if name.startswith(f"{incarnation:06d}.")]
    )


def read(store: Path, id: str) -> IncidentRecord:
    """Raises OSError, and codec.UndecodableRecord."""
    return codec.read(files.named(store, files.INCIDENTS, id), IncidentRecord, FORMAT)


def evidence(store: Path, id: str) -> Path:
    """The folder of an incident's evidence."""
    return store / files.INCIDENTS / id
