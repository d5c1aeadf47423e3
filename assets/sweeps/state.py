"""The state of a sweep, which follows from its events alone.

States are immutable and equal for equal logs, so a process that reads the log before or after a crash sees the same
sweep and takes the same decisions. `after` takes all new events together: it copies the trials once, for any number of
events, and changes the copy.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipway.assets.sweeps.events import (
    RECIPE,
    Budgeted,
    Closed,
    Decided,
    Ended,
    Event,
    Opened,
    Paused,
    Proposed,
    Reported,
    Resumed,
    Retried,
    Started,
    SweepPaused,
    SweepResumed,
    Verdict,
    rung_reached,
    rungs_of,
)
from slipway.assets.sweeps.trial import Parameters, RungArrival, Trial, TrialObservation

__all__ = ["Parameters", "RungArrival", "SweepState", "Trial", "TrialObservation", "fold"]


@dataclass(frozen=True)
class SweepState:
    """A sweep after some events."""

    plan: Opened
    budget: Budgeted
    """The newest budget."""
    recipe_budget: Budgeted
    """The newest budget from the recipe."""
    trials: Mapping[int, Trial] = field(default_factory=dict)
    open_trials: Mapping[int, None] = field(default_factory=dict)
    """The numbers of the trials that have not ended."""
    failed_trials: Mapping[int, None] = field(default_factory=dict)
    """The numbers of the trials whose last attempt failed, in the order of the failures."""
    over: tuple[int, ...] = ()
    """The numbers of the trials that are over, in the order of their ends."""
    arrivals: Mapping[int, tuple[RungArrival, ...]] = field(default_factory=dict)
    """The arrivals at each rung, in the order of the log."""
    unjudged: tuple[RungArrival, ...] = ()
    """The arrivals without a verdict, of trials that do not pause there, in the order of the log."""
    verdicts: Mapping[tuple[int, int], Verdict] = field(default_factory=dict)
    """By trial and rung, in the order of the log."""
    drawn: int = 0
    """The number of trials that count for the budget: all except the children of population-based training."""
    lowest: float | None = None
    """The lowest value that any trial reported."""
    pause: SweepPaused | None = None
    """The event with which a person paused the sweep, while it is paused."""
    closed: Closed | None = None
    answered: int = 0
    """The number of the last request in the log."""

    def after(self, *events: Event) -> "SweepState":
        """The sweep after some more events. Raises ValueError for a second plan, or an unknown trial."""
        return _Draft(self).after(events) if events else self

    @property
    def rungs(self) -> tuple[int, ...]:
        """The rungs below the full length, ascending."""
        return rungs_of(self.plan)

    @property
    def not_ended(self) -> list[Trial]:
        """The pending, running and paused trials, by number."""
        return [self.trials[number] for number in sorted(self.open_trials)]

    @property
    def running(self) -> list[Trial]:
        """The trials that hold a slot: neither ended nor paused, even if their job has not started."""
        return [trial for trial in self.not_ended if not trial.paused]

    @property
    def paused(self) -> list[Trial]:
        """The trials that wait with a commit."""
        return [trial for trial in self.not_ended if trial.paused]

    @property
    def retryable(self) -> list[Trial]:
        """The failed trials with retries left."""
        return [trial for trial in self._failed if trial.attempt < self.budget.retries]

    @property
    def failed_for_good(self) -> list[Trial]:
        """The failed trials without retries left."""
        return [trial for trial in self._failed if trial.attempt >= self.budget.retries]

    @property
    def finished(self) -> list[Trial]:
        """The trials that completed or were stopped."""
        return [trial for trial in self.trials.values() if trial.state in ("completed", "stopped")]

    @property
    def _failed(self) -> list[Trial]:
        return [self.trials[number] for number in self.failed_trials]

    @property
    def planned(self) -> int:
        """The total number of trials as far as it is known; population-based training adds children."""
        return self.budget.trials + len(self.trials) - self.drawn

    @property
    def goal_reached(self) -> bool:
        """Whether a trial has reported a value at the goal or below."""
        return self.budget.goal is not None and self.lowest is not None and self.lowest <= self.budget.goal

    def reached(self, trial: Trial) -> int:
        """The last step that a trial is known to have reached."""
        if trial.state == "completed":
            return self.plan.steps
        return trial.last_step

    def steps_trained(self, trial: Trial) -> int:
        """The steps that a trial itself is known to have trained; a child starts at its parent's commit."""
        return self.reached(trial) - trial.first_step

    @property
    def best(self) -> Trial | None:
        """The trial with the lowest value among those with the most steps, running or not; the earlier one of equals.

        The steps count first, because values at different steps are not comparable. A closed sweep keeps the best trial
        of its closing event, even if a trial that is being stopped reports a better value.
        """
        if self.closed:
            if self.closed.best_trial is None:
                return None
            return self.trials[self.closed.best_trial]
        candidates = [
            (-self.reached(trial), trial.value, trial.number)
            for trial in self.trials.values()
            if trial.value is not None
        ]
        return self.trials[min(candidates)[2]] if candidates else None

    @property
    def compute_saved(self) -> float:
        """1 - steps trained / (trials x steps of a complete trial), over the finished trials; 0 without any.

        The children of population-based training replace other trials: only their steps count.
        """
        finished = self.finished
        full_steps = sum(trial.parent is None for trial in finished) * self.plan.steps
        if not full_steps:
            return 0.0
        return 1 - sum(map(self.steps_trained, finished)) / full_steps

    def observation(self, trial: Trial) -> TrialObservation:
        """The result of a trial that is over."""
        return TrialObservation(trial.parameters, trial.value, None if trial.state == "completed" else trial.last_step)

    def history(self) -> list[TrialObservation]:
        """The results of the trials that are over, by number, from which the sampler learns."""
        return [self.observation(self.trials[number]) for number in sorted(self.over)]


class _Draft:
    """A mutable copy of a sweep's state, while events are applied."""

    def __init__(self, state: SweepState) -> None:
        self.state = state
        self.trials = dict(state.trials)
        self.arrivals = dict(state.arrivals)
        self.open_trials = dict(state.open_trials)
        self.failed_trials = dict(state.failed_trials)
        self.over = list(state.over)
        self.unjudged = list(state.unjudged)
        self.verdicts = dict(state.verdicts)
        self.lowest = state.lowest
        self.drawn = state.drawn
        self.rungs = state.rungs
        self.changed: dict[str, Any] = {}

    def after(self, events: Sequence[Event]) -> SweepState:
        for event in events:
            try:
                self._take(event)
            except KeyError as error:  # the reader of the log leaves out damaged lines
                raise ValueError(
                    f"sweep log: found the event {event!r}, expected what it follows before it (trial {error})"
                ) from None
        parts = ("trials", "arrivals", "open_trials", "failed_trials", "verdicts", "lowest", "drawn")
        return dataclasses.replace(
            self.state,
            **{name: getattr(self, name) for name in parts},
            over=tuple(self.over),
            unjudged=tuple(self.unjudged),
            **self.changed,
        )

    def _take(self, event: Event) -> None:
        match event:
            case Reported():
                self._report(event)
            case Proposed(trial=number):
                self.trials[number] = Trial(
                    number, event.parameters, event.until, event.parent, event.step, drawn_after=len(self.over)
                )
                self.open_trials[number] = None
                self.drawn += event.parent is None
            case Started(trial=number, job=job, nodes=nodes, at=at):
                self._change(number, job=job, nodes=nodes, started_at=at)
            case Decided(trial=number, step=rung, verdict=verdict):
                self._change(number, told_to_stop=verdict == "stop")
                self.verdicts[number, rung] = verdict
                stopped = verdict == "stop"
                self.unjudged = [
                    arrival
                    for arrival in self.unjudged
                    if arrival.trial != number or (arrival.rung != rung and not stopped)
                ]
            case Paused(trial=number, step=step):
                self._change(number, paused=True, paused_at=step, job=None, nodes=())
            case Resumed(trial=number, until=until):
                self._change(number, paused=False, until=until)
            case Ended(trial=number):
                self._end(event)
            case Retried(trial=number, attempt=attempt):
                self._change(number, attempt=attempt, job=None, nodes=(), ended=None)
                self.failed_trials.pop(number)
                if number in self.over:  # the budget of retries has grown
                    self.over.remove(number)
                self.open_trials[number] = None
            case _:
                self._about_the_sweep(event)

    def _about_the_sweep(self, event: Event) -> None:
        match event:
            case Budgeted():
                self._budget(event)
            case SweepPaused(request=request):
                self.changed |= {"pause": event, "answered": max(request, self._now("answered"))}
            case SweepResumed(request=request):
                self.changed |= {"pause": None, "answered": max(request, self._now("answered"))}
            case Closed():
                self.changed["closed"] = event
            case Opened() if event == self.state.plan:  # two processes opened the sweep simultaneously
                pass
            case Opened(sweep=sweep):
                raise ValueError(f"sweep {sweep}: the sweep was opened with another plan before: {event!r}")
            case _:
                raise AssertionError(f"a sweep has no event {event!r}")

    def _budget(self, new: Budgeted) -> None:
        old = self._now("budget")
        closed = self._now("closed")
        more = (new.trials, new.failed_trials) != (old.trials, old.failed_trials) or new.goal != old.goal
        if closed is not None and closed.outcome != "stopped" and more:  # an equal or smaller budget reopens nothing
            self.changed["closed"] = None
        self.changed |= {"budget": new, "answered": max(new.request, self._now("answered"))}
        if new.by == RECIPE:
            self.changed["recipe_budget"] = new
        over = set(self.over)  # whether a failed trial is over depends on the budget of retries
        self.over += [trial for trial in self.failed_trials if trial not in over and not self._retryable(trial, new)]
        self.over = [
            number for number in self.over if number not in self.failed_trials or not self._retryable(number, new)
        ]

    def _retryable(self, number: int, budget: Budgeted) -> bool:
        return self.trials[number].attempt < budget.retries

    def _now(self, name: str) -> Any:
        return self.changed.get(name, getattr(self.state, name))

    def _change(self, number: int, **fields: Any) -> None:
        self.trials[number] = dataclasses.replace(self.trials[number], **fields)

    def _end(self, event: Ended) -> None:
        number = event.trial
        self._change(number, ended=event, paused=False)
        self.open_trials.pop(number, None)
        self.unjudged = [arrival for arrival in self.unjudged if arrival.trial != number]
        if self.trials[number].state == "failed":
            self.failed_trials[number] = None
            if self._retryable(number, self._now("budget")):
                return
        self.over.append(number)

    def _report(self, event: Reported) -> None:
        trial = self.trials[event.trial]
        if event.step in trial.reports:
            return
        self._change(event.trial, reports={**trial.reports, event.step: event.value})
        if event.value is not None and (self.lowest is None or event.value < self.lowest):
            self.lowest = event.value
        rung = rung_reached(self.rungs, event.step)
        if rung is None or rung <= trial.last_step or event.step >= self.state.plan.steps:
            return
        arrival = RungArrival(event.trial, rung, event.value)
        self.arrivals[rung] = (*self.arrivals.get(rung, ()), arrival)
        if rung < trial.until and trial.ended is None and not trial.told_to_stop:
            self.unjudged.append(arrival)


def fold(events: Sequence[Event]) -> SweepState:
    """The state after the events of a log. Raises ValueError if it does not begin with Opened and Budgeted.

    Opened may occur twice, if a process opened the sweep and died before it logged the budget.
    """
    plan = events[0] if events else None
    begun = next((index for index, event in enumerate(events) if event != plan), 0)
    budget = events[begun] if begun else None
    if isinstance(plan, Opened) and isinstance(budget, Budgeted):
        return SweepState(plan, budget, budget).after(*events[begun + 1 :])
    raise ValueError(f"sweep log: found {list(events[:2])!r} first, expected the events opened and budgeted")
