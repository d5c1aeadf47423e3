"""The events of a sweep: its log is a journal of them, one on each line, and the only record of the sweep.

Decisions of the controller (opened, budgeted, asked, decided, resumed, retried, sweep_paused, sweep_resumed, closed)
are logged before it acts on them; observations (started, reported, paused, ended) are logged after they have happened.

A trial's life:
    asked -> started -> reported ... -> paused at `until` -> resumed to the next rung -> started -> ... -> ended
A trial that is stopped may be paused or running then; one that failed is retried and started again.
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
"""Who gave a budget that follows from the recipe."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """The field of all events. Events with equal other fields are equal, whenever they were logged."""

    at: float = field(default=0.0, compare=False)
    """When the event was logged, in seconds since the epoch; the store sets it. No decision depends on it."""


@dataclass(frozen=True, kw_only=True)
class Opened(Event):
    """The first event: what the sweep is, which never changes. How much it may spend is its budget."""

    format: str = FORMAT
    sweep: str
    """The sweep's id."""
    recipe: str
    """The hash of the sweep's specification."""
    space: Mapping[str, Mapping[str, Any]]
    """By dotted parameter its domain: one of loguniform, uniform, randint, choice; with `step`, with `when`."""
    constraints: tuple[str, ...] = ()
    """What must hold between parameters, such as "batch.micro <= batch.sequences": `slipway.recipes.constraints`."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """The values of the training's fields that constraints name and that no trial draws."""
    written: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of trial 0: the recipe as it is written."""
    sampler: str
    seed: int
    steps: int
    """Steps of a complete trial."""
    scheduler: Mapping[str, Any]
    """The section `scheduler` of the recipe: its `kind`, and what that has (rungs ...)."""


@dataclass(frozen=True, kw_only=True)
class Budgeted(Event):
    """What the sweep may spend from now on; the newest holds. One that asks for more reopens a sweep that had ended."""

    trials: int
    """How many trials the sampler draws. A retried trial counts once, and a child of population-based training not at
    all: it takes the place of the member that it replaces."""
    parallel: int
    """The most trials that hold a slot at a time."""
    retries: int
    """How many times one trial is started again after a failure."""
    failed_trials: int
    """How many trials may fail for good; one more fails the sweep. A lineage counts once."""
    goal: float | None = None
    """The sweep is complete once a trial has reported this value or a lower one; None for no goal."""
    by: str = RECIPE
    """`RECIPE`, or the person who changed it."""
    why: str = ""
    request: int = 0
    """The number of the person's request that this answers, 0 for none."""


@dataclass(frozen=True, kw_only=True)
class Asked(Event):
    """A new trial has its parameters. Trials are numbered from 0 in the order of asking."""

    trial: int
    parameters: Mapping[str, Any]
    until: int
    """The step at which it pauses with a verified commit, or the full length, where it ends."""
    parent: int | None = None
    """The trial whose commit of `step` it continues, as a child in population-based training; None for a new start."""
    step: int = 0
    """Where it begins: 0, or the step of the parent's commit. A child's steps are numbered on from there."""


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """The trial's job was submitted or adopted: the first one, or that of a trial that goes on or is retried."""

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
    """Whether the trial goes on past `step`. A trial that waits at a rung and can no more be promoted is stopped so."""

    trial: int
    step: int
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Paused(Event):
    """The trial has left its slot, and its commit of `step` is there and verified. It has reported its value there.

    `step` is `until`, or an earlier one when a person paused the sweep.
    """

    trial: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Resumed(Event):
    """A paused trial goes on from its commit to `until`."""

    trial: int
    until: int


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """The trial has ended. `value` is the final value of a completed trial, None when it is not finite."""

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
class SweepPaused(Event):
    """A person paused the sweep: its trials commit and leave, none starts or goes on, nothing new is asked."""

    by: str
    why: str = ""
    request: int = 0


@dataclass(frozen=True, kw_only=True)
class SweepResumed(Event):
    """A person lets the sweep go on: each trial that was interrupted goes on to where it was going."""

    by: str
    why: str = ""
    request: int = 0


@dataclass(frozen=True, kw_only=True)
class Closed(Event):
    """No further decision is made. Trials that have not ended are stopped; after this event only their ends are logged.

    A sweep that is complete or failed is open again after a budget that asks for more; a stopped one stays so.
    """

    outcome: SweepOutcome
    best_trial: int | None
    best_value: float | None
    reason: str = ""


_EVENTS = (
    *(Opened, Budgeted, Asked, Started, Reported, Decided, Paused, Resumed, Ended, Retried),
    *(SweepPaused, SweepResumed, Closed),
)


def _name(kind: type[Event]) -> str:
    """`SweepPaused` is `sweep_paused` in the log."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


_KINDS: dict[str, type[Event]] = {_name(kind): kind for kind in _EVENTS}
_NAMES: dict[type[Event], str] = {kind: name for name, kind in _KINDS.items()}


def finite_or_none(value: float) -> float | None:
    """`value`, or None for NaN and infinities, which JSON does not have and no decision tells apart."""
    return value if math.isfinite(value) else None


def record(event: Event) -> dict[str, Any]:
    """The JSON value of an event, which is one line of the log."""
    return {"event": _NAMES[type(event)], **codec.plain(event)}


def parse(record: Mapping[str, Any]) -> Event:
    """The event of one line. Raises ValueError for a log of another version."""
    kind = _KINDS.get(record["event"])
    if kind is None or record.get("format", FORMAT) != FORMAT:
        version = record.get("format", record["event"])
        raise ValueError(
            f"sweep log: found {version!r}, expected an event of {FORMAT}: {', '.join(_KINDS)}. A sweep that another "
            "version began is finished by that version, or begun again"
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
    """The rungs of a plan, ascending; its scheduler has them in a list, whose last is the full length, or `every`."""
    if "every" in plan.scheduler:
        return tuple(range(plan.scheduler["every"], plan.steps, plan.scheduler["every"]))
    return tuple(plan.scheduler.get("rungs", ())[:-1])


def rung_reached(rungs: Sequence[int], step: int) -> int | None:
    """The highest rung at or below `step`, None below the first."""
    return max((rung for rung in rungs if rung <= step), default=None)
