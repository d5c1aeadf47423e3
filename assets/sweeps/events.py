"""The events of a sweep: what its log says, and all that is true of it.

A log is a journal of these, one a line. What the controller decides (opened, asked, decided, retried, closed) is
logged before it is acted upon; what it observes (started, reported, ended) after it has happened.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assets.sweeps.halving import Verdict
from assets.sweeps.space import Parameters, Sampler, Space

FORMAT = "slipway.sweep-log/1"

Outcome = Literal["completed", "stopped", "failed"]
SweepOutcome = Literal["complete", "failed", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """What all events have. Two events are equal when they say the same, whenever they were logged."""

    at: float = field(default=0.0, compare=False)
    """When it was logged, in seconds since the epoch; the store fills it in. No decision looks at it."""


@dataclass(frozen=True, kw_only=True)
class Opened(Event):
    """The sweep began; the first event, with everything that decides its course."""

    format: str = FORMAT
    sweep: str
    """The sweep's id."""
    recipe: str
    """Hash of the recipe it was opened from."""
    space: Space
    sampler: Sampler
    seed: int
    trials: int
    """How many trials there will be; a retried one counts once."""
    parallel: int
    """The most trials at a time."""
    steps: int
    """Steps of a complete trial."""
    rungs: tuple[int, ...]
    """Steps at which a trial is judged, ascending, below `steps`; none: no early stopping."""
    eta: int
    """About one trial in `eta` goes on past a rung."""
    retries: int
    """How often one trial is started again after it failed."""
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
    """The trial's validation value after so many steps. Lower is better; None for a value that is not finite."""

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
    """The trial's job has ended. `value` is what a completed trial is judged by, None when it is not finite."""

    trial: int
    outcome: Outcome
    value: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Retried(Event):
    """A failed trial shall start again, under its own number: counts are of trials, never of attempts."""

    trial: int
    attempt: int
    """1 for the first retry."""


@dataclass(frozen=True, kw_only=True)
class Closed(Event):
    """Nothing more is decided. Trials that still run are stopped; only their ends are logged after this."""

    outcome: SweepOutcome
    best_trial: int | None
    best_value: float | None
    reason: str = ""


_KINDS: dict[str, Callable[..., Event]] = {
    kind.__name__.lower(): kind for kind in (Opened, Asked, Started, Reported, Decided, Ended, Retried, Closed)
}


def finite(value: float) -> float | None:
    """`value` as a report carries it: JSON has neither NaN nor infinities, and no decision needs to tell them apart."""
    return value if math.isfinite(value) else None


def record(event: Event) -> dict[str, Any]:
    """The JSON value of `event`, a line of the log."""
    return {"event": type(event).__name__.lower(), **dataclasses.asdict(event)}


def parse(record: Mapping[str, Any]) -> Event:
    """The event of one line. Raises ValueError for a log that another version wrote."""
    kind = _KINDS.get(record["event"])
    if kind is None or record.get("format", FORMAT) != FORMAT:
        found = record.get("format", record["event"])
        raise ValueError(f"sweep log: found {found!r}, expected an event of {FORMAT}: {', '.join(_KINDS)}")
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
    del fields["event"]
    return kind(**fields)
