"""The events of a sweep. Its log is a journal with one event on each line, and the only record of the sweep.

Decisions of the controller (opened, budgeted, asked, decided, resumed, retried, sweep_paused, sweep_resumed, closed)
are logged before it acts on them; observations (started, reported, paused, ended) are logged afterwards.

A trial's life:
    asked -> started -> reported ... -> paused at `until` -> resumed to the next rung -> started -> ... -> ended
A trial may be stopped while it is paused or running; a failed trial is retried and started again.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from slipway.recipes import schedulers
from slipway.recipes.strict import RefusedValue
from slipway.trainer.base import codec
from slipway.trainer.base.invalid import Invalid

FORMAT = "slipway.sweep-log/2"
Verdict = Literal["go on", "stop"]
Outcome = Literal["completed", "stopped", "failed"]
SweepOutcome = Literal["complete", "failed", "stopped"]
RECIPE = "recipe"
"""The author of a budget from the recipe."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """The base of all events. The time does not count for equality."""

    at: float = field(default=0.0, compare=False)
    """The time of logging, in seconds since the epoch; the store sets it. No decision depends on it."""


@dataclass(frozen=True, kw_only=True)
class Opened(Event):
    """The first event: the sweep's identity, which never changes. Its budget is separate."""

    format: str = FORMAT
    sweep: str
    """The sweep's id."""
    recipe: str
    """The hash of the sweep's specification."""
    space: Mapping[str, Mapping[str, Any]]
    """The domain of each dotted parameter: one of loguniform, uniform, randint, choice; optionally `step` and
    `when`."""
    constraints: tuple[str, ...] = ()
    """Constraints between parameters, such as "batch.micro <= batch.sequences" (`slipway.recipes.constraints`)."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """The training's values of fields that constraints name but no trial draws."""
    written: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of trial 0: the recipe as it is written."""
    sampler: str
    seed: int
    steps: int
    """The steps of a complete trial."""
    scheduler: Mapping[str, Any]
    """The section `scheduler` of the recipe: its `kind`, and that kind's fields, such as rungs."""


@dataclass(frozen=True, kw_only=True)
class Budgeted(Event):
    """The sweep's budget; the newest event counts. A larger budget reopens a sweep that has ended."""

    trials: int
    """The number of trials that the sampler draws. A retried trial counts once. A child of population-based training
    does not count, because it replaces a member."""
    parallel: int
    """The most trials that hold a slot at the same time."""
    retries: int
    """The most restarts of one trial after failures."""
    failed_trials: int
    """The most trials that may fail for good; one more makes the sweep fail. A lineage counts once."""
    goal: float | None = None
    """The sweep is complete once a trial reports this value or a lower one; None for no goal."""
    by: str = RECIPE
    """`RECIPE`, or the person who changed it."""
    why: str = ""
    request: int = 0
    """The number of the request that this event answers; 0 for none."""


@dataclass(frozen=True, kw_only=True)
class Proposed(Event):
    """A new trial with its parameters. Trials are numbered from 0 in the order of these events."""

    trial: int
    parameters: Mapping[str, Any]
    until: int
    """The step at which the trial pauses with a verified commit, or its full length, where it ends."""
    parent: int | None = None
    """The trial whose commit at `step` a child of population-based training continues; None for a new start."""
    step: int = 0
    """The first step: 0, or the step of the parent's commit, from which a child's steps continue."""


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """The trial's job was submitted or adopted, at its first start, after a pause or for a retry."""

    trial: int
    job: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Reported(Event):
    """The trial's validation value at a step. Lower is better; None for a value that is not finite."""

    trial: int
    step: int
    value: float | None


@dataclass(frozen=True, kw_only=True)
class Decided(Event):
    """Whether the trial continues past `step`. It also stops a waiting trial that cannot be promoted any more."""

    trial: int
    step: int
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Paused(Event):
    """The trial has left its slot, with a reported value and a verified commit at `step`.

    `step` is `until`, or an earlier step if a person paused the sweep.
    """

    trial: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Resumed(Event):
    """A paused trial continues from its commit to `until`."""

    trial: int
    until: int


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """The trial has ended. `value` is the final value of a completed trial, None if it is not finite."""

    trial: int
    outcome: Outcome
    value: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Retried(Event):
    """A failed trial starts again under the same number. All counts are of trials, not of attempts."""

    trial: int
    attempt: int
    """1 for the first retry."""


@dataclass(frozen=True, kw_only=True)
class SweepPaused(Event):
    """A person paused the sweep: its trials commit and leave, and no trial starts, continues or is drawn."""

    by: str
    why: str = ""
    request: int = 0


@dataclass(frozen=True, kw_only=True)
class SweepResumed(Event):
    """A person resumed the sweep: each interrupted trial continues to its `until`."""

    by: str
    why: str = ""
    request: int = 0


@dataclass(frozen=True, kw_only=True)
class Closed(Event):
    """The sweep takes no further decision. Unfinished trials are stopped, and only their ends are logged after this.

    A larger budget reopens a sweep that is complete or failed; a stopped sweep stays stopped.
    """

    outcome: SweepOutcome
    best_trial: int | None
    best_value: float | None
    reason: str = ""


_EVENTS = (
    *(Opened, Budgeted, Proposed, Started, Reported, Decided, Paused, Resumed, Ended, Retried),
    *(SweepPaused, SweepResumed, Closed),
)


def _name(kind: type[Event]) -> str:
    """The name of an event in the log: `SweepPaused` is `sweep_paused`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


_KINDS: dict[str, type[Event]] = {_name(kind): kind for kind in _EVENTS}
_NAMES: dict[type[Event], str] = {kind: name for name, kind in _KINDS.items()}


def finite_or_none(value: float) -> float | None:
    """`value`, or None for NaN and infinities, which JSON lacks and which are the same to every decision."""
    return value if math.isfinite(value) else None


def record(event: Event) -> dict[str, Any]:
    """The JSON value of an event, for one line of the log."""
    return {"event": _NAMES[type(event)], **codec.plain(event)}


def parse(record: Mapping[str, Any]) -> Event:
    """Parse one line of the log. Raises ValueError for a log of another version."""
    kind = _KINDS.get(record["event"])
    if kind is None or record.get("format", FORMAT) != FORMAT:
        version = record.get("format", record["event"])
        raise ValueError(
            f"sweep log: found {version!r}, expected an event of {FORMAT}: {', '.join(_KINDS)}. Finish the sweep with "
            "the version that started it, or start it again"
        )
    fields = {name: value for name, value in record.items() if name != "event"}
    try:
        event = codec.build(kind, fields)
        if isinstance(event, Opened):
            schedulers.parsed(event.scheduler)
        return event
    except RefusedValue as fault:
        raise ValueError(f"sweep log: event {record['event']}: field scheduler: {fault}") from None
    except Invalid as fault:
        raise ValueError(f"sweep log: event {record['event']}: field {fault.field}: {fault}") from None


def rungs_of(plan: Opened) -> tuple[int, ...]:
    """The rungs of a plan, ascending, from the scheduler's list (which ends with the full length) or its `every`."""
    if "every" in plan.scheduler:
        return tuple(range(plan.scheduler["every"], plan.steps, plan.scheduler["every"]))
    return tuple(plan.scheduler.get("rungs", ())[:-1])


def rung_reached(rungs: Sequence[int], step: int) -> int | None:
    """The highest rung at or below `step`; None below the first."""
    return max((rung for rung in rungs if rung <= step), default=None)
