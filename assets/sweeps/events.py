"""The events of a sweep: its log is a journal of them, one on each line, and the only record of the sweep.

Decisions of the controller (opened, asked, decided, retried, closed) are logged before it acts on them; observations
(started, reported, ended) are logged after they have happened.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assets.sweeps.halving import Verdict
from assets.sweeps.space import Parameters, Sampler, Space
from trainer.base import codec
from trainer.base.invalid import Invalid

FORMAT = "slipway.sweep-log/1"

Outcome = Literal["completed", "stopped", "failed"]
SweepOutcome = Literal["complete", "failed", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """The field of all events. Events with equal other fields are equal, whenever they were logged."""

    at: float = field(default=0.0, compare=False)
    """When the event was logged, in seconds since the epoch; the store sets it. No decision depends on it."""


@dataclass(frozen=True, kw_only=True)
class Opened(Event):
    """The first event: the sweep is open, with everything that decides its course."""

    format: str = FORMAT
    sweep: str
    """The sweep's id."""
    recipe: str
    """The hash of the sweep's specification."""
    space: Space
    sampler: Sampler
    seed: int
    trials: int
    """How many trials the sweep has; a retried trial counts once."""
    parallel: int
    """The most trials at a time."""
    steps: int
    """Steps of a complete trial."""
    rungs: tuple[int, ...]
    """The steps at which a trial is judged, ascending, below `steps`; without rungs there is no early stopping."""
    eta: int
    """About one trial in `eta` goes on past a rung."""
    retries: int
    """How many times one trial is started again after a failure."""
    failed_trials: int
    """How many trials may fail for good; one more fails the sweep."""


@dataclass(frozen=True, kw_only=True)
class Asked(Event):
    """A new trial has its parameters. Trials are numbered from 0 in the order of asking."""

    trial: int
    parameters: Parameters


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """The trial's job was submitted or adopted."""

    trial: int
    job: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Reported(Event):
    """The validation value of the trial at a step. Lower is better; None for a value that is not finite."""

    trial: int
    step: int
    value: float | None


@dataclass(frozen=True, kw_only=True)
class Decided(Event):
    """Whether the trial goes on past the rung at `step`."""

    trial: int
    step: int
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """The job of the trial has ended. `value` is the final value of a completed trial, None when it is not finite."""

    trial: int
    outcome: Outcome
    value: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Retried(Event):
    """A failed trial starts again under its own number; all counts are of trials, not of attempts."""

    trial: int
    attempt: int
    """1 for the first retry."""


@dataclass(frozen=True, kw_only=True)
class Closed(Event):
    """No further decision is made. Running trials are stopped, and after this event only their ends are logged."""

    outcome: SweepOutcome
    best_trial: int | None
    best_value: float | None
    reason: str = ""


_KINDS: dict[str, type[Event]] = {
    kind.__name__.lower(): kind for kind in (Opened, Asked, Started, Reported, Decided, Ended, Retried, Closed)
}


def finite_or_none(value: float) -> float | None:
    """`value`, or None for NaN and infinities, which JSON does not have and no decision tells apart."""
    return value if math.isfinite(value) else None


def record(event: Event) -> dict[str, Any]:
    """The JSON value of an event, which is one line of the log."""
    return {"event": type(event).__name__.lower(), **codec.plain(event)}


def parse(record: Mapping[str, Any]) -> Event:
    """The event of one line. Raises ValueError for a log of another version."""
    kind = _KINDS.get(record["event"])
    if kind is None or record.get("format", FORMAT) != FORMAT:
        found = record.get("format", record["event"])
        raise ValueError(f"sweep log: found {found!r}, expected an event of {FORMAT}: {', '.join(_KINDS)}")
    fields = {name: value for name, value in record.items() if name != "event"}
    try:
        return codec.build(kind, fields)
    except Invalid as fault:
        raise ValueError(f"sweep log: event {record['event']}: field {fault.field}: {fault}") from None
