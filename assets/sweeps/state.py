"""The state of a sweep, which follows from its events alone.

States are immutable and equal for equal logs, so a process that reads the log before or after a crash sees the same
sweep and takes the same decisions.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from assets.sweeps import halving
from assets.sweeps.events import Asked, Closed, Decided, Ended, Event, Opened, Outcome, Reported, Retried, Started
from assets.sweeps.space import Parameters, TrialObservation


@dataclass(frozen=True)
class Trial:
    """One trial. A retry has the same number."""

    number: int
    parameters: Parameters
    attempt: int = 0
    """The number of retries so far."""
    job: str | None = None
    """The job of the present attempt, once it is submitted."""
    nodes: tuple[str, ...] = ()
    reports: Mapping[int, float | None] = field(default_factory=dict)
    """The value at each step reported; the first report of a step holds."""
    told_to_stop: bool = False
    """Whether the verdict at a rung was to stop."""
    ended: Ended | None = None
    """How the present attempt ended."""
    started_at: float | None = field(default=None, compare=False)
    """When its latest job was started, in seconds since the epoch."""

    @property
    def state(self) -> Literal["pending", "running"] | Outcome:
        """Pending until the job is submitted. A trial that failed after its verdict was to stop counts as stopped."""
        if self.ended is None:
            return "pending" if self.job is None else "running"
        if self.ended.outcome == "failed" and self.told_to_stop:
            return "stopped"
        return self.ended.outcome

    @property
    def last_step(self) -> int:
        """The last step reported, 0 before the first report."""
        return max(self.reports, default=0)

    @property
    def value(self) -> float | None:
        """The value that a finished trial is judged by: the final one of a completed trial, the last one of a
        stopped."""
        if self.state == "completed":
            return self.ended.value if self.ended else None
        return self.reports.get(self.last_step) if self.state == "stopped" else None


@dataclass(frozen=True)
class RungArrival:
    """The arrival of a trial at a rung, with its value there."""

    trial: int
    rung: int
    value: float | None


@dataclass(frozen=True)
class SweepState:
    """A sweep after some events."""

    plan: Opened
    trials: Mapping[int, Trial] = field(default_factory=dict)
    arrivals: tuple[RungArrival, ...] = ()
    """Which trial reached which rung, in the order of the log."""
    verdicts: Mapping[tuple[int, int], halving.Verdict] = field(default_factory=dict)
    """By trial and rung."""
    closed: Closed | None = None

    def after(self, event: Event) -> "SweepState":
        """The sweep after one more event."""
        match event:
            case Asked(trial=number, parameters=parameters):
                return self._with(Trial(number, parameters))
            case Started(trial=number, job=job, nodes=nodes, at=at):
                return self._with(dataclasses.replace(self.trials[number], job=job, nodes=nodes, started_at=at))
            case Reported():
                return self._after_report(event)
            case Decided(trial=number, step=rung, verdict=verdict):
                told = self._with(dataclasses.replace(self.trials[number], told_to_stop=verdict == "stop"))
                return dataclasses.replace(told, verdicts={**self.verdicts, (number, rung): verdict})
            case Ended(trial=number):
                return self._with(dataclasses.replace(self.trials[number], ended=event))
            case Retried(trial=number, attempt=attempt):
                return self._with(
                    dataclasses.replace(self.trials[number], attempt=attempt, job=None, nodes=(), ended=None)
                )
            case Closed():
                return dataclasses.replace(self, closed=event)
            case Opened() if event == self.plan:  # two processes of an earlier version opened it at one moment
                return self
            case Opened():
                raise ValueError(f"sweep {self.plan.sweep}: the sweep was opened with another plan before: {event!r}")
        raise AssertionError(f"a sweep has no event {event!r}")

    def _after_report(self, event: Reported) -> "SweepState":
        trial = self.trials[event.trial]
        if event.step in trial.reports:
            return self
        after = self._with(dataclasses.replace(trial, reports={**trial.reports, event.step: event.value}))
        rung = halving.rung_reached(self.plan.rungs, event.step)
        arrived = any(each.trial == event.trial and each.rung == rung for each in self.arrivals)
        if rung is None or arrived or event.step >= self.plan.steps:
            return after
        return dataclasses.replace(after, arrivals=(*self.arrivals, RungArrival(event.trial, rung, event.value)))

    def _with(self, trial: Trial) -> "SweepState":
        return dataclasses.replace(self, trials={**self.trials, trial.number: trial})

    @property
    def running(self) -> list[Trial]:
        """The trials that count as parallel: asked and not ended, whether or not their job has started."""
        return [trial for trial in self.trials.values() if trial.ended is None]

    @property
    def retryable(self) -> list[Trial]:
        """The failed trials that have retries left."""
        return [trial for trial in self._failed if trial.attempt < self.plan.retries]

    @property
    def failed_for_good(self) -> list[Trial]:
        """The trials that failed and have no retries left."""
        return [trial for trial in self._failed if trial.attempt >= self.plan.retries]

    @property
    def finished(self) -> list[Trial]:
        """The trials that completed or were stopped."""
        return [trial for trial in self.trials.values() if trial.state in ("completed", "stopped")]

    @property
    def _failed(self) -> list[Trial]:
        return [trial for trial in self.trials.values() if trial.state == "failed"]

    def steps_trained(self, trial: Trial) -> int:
        """Steps a trial is known to have trained."""
        return self.plan.steps if trial.state == "completed" else trial.last_step

    @property
    def best(self) -> Trial | None:
        """The finished trial with the lowest value among those with the most steps; the earlier one of equals.

        The steps count first because values at different steps are not comparable. A closed sweep keeps the best trial
        that it was closed with, whatever a trial reports that is still being stopped.
        """
        if self.closed:
            return None if self.closed.best_trial is None else self.trials[self.closed.best_trial]
        candidates = [
            (-self.steps_trained(trial), trial.value, trial.number)
            for trial in self.finished
            if trial.value is not None
        ]
        return self.trials[min(candidates)[2]] if candidates else None

    @property
    def compute_saved(self) -> float:
        """1 - steps trained / (trials x steps of a complete trial), over the finished trials; 0 without any."""
        whole = len(self.finished) * self.plan.steps
        return 1 - sum(map(self.steps_trained, self.finished)) / whole if whole else 0.0

    def history(self) -> list[TrialObservation]:
        """The trials that are over, by number, from which the sampler learns."""
        over = [*self.finished, *self.failed_for_good]
        return [
            TrialObservation(trial.parameters, trial.value, None if trial.state == "completed" else trial.last_step)
            for trial in sorted(over, key=lambda trial: trial.number)
        ]


def fold(events: Sequence[Event]) -> SweepState:
    """The state after the events of a log. Raises ValueError when its first event is not Opened."""
    match events:
        case [Opened() as plan, *rest]:
            return functools.reduce(SweepState.after, rest, SweepState(plan))
    raise ValueError(f"sweep log: found {events[:1]!r} first, expected the event opened")
