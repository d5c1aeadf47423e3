"""One trial of a sweep: its status and its reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from slipway.assets.sweeps.events import Ended, Outcome

Parameters = Mapping[str, Any]
"""A value for each dotted parameter."""


@dataclass(frozen=True)
class Trial:
    """One trial. A retry has the same number."""

    number: int
    parameters: Parameters
    until: int
    """The step at which it pauses next, or its full length."""
    parent: int | None = None
    """The trial that a child of population-based training continues."""
    first_step: int = 0
    """The first step: 0, or the step of the parent's commit."""
    drawn_after: int = 0
    """The number of trials that were over when it was drawn."""
    attempt: int = 0
    """The number of retries so far."""
    job: str | None = None
    """The current job, after its submission."""
    nodes: tuple[str, ...] = ()
    reports: Mapping[int, float | None] = field(default_factory=dict)
    """The value at each reported step; the first report of a step counts."""
    told_to_stop: bool = False
    """Whether the last verdict was to stop."""
    paused: bool = False
    """Whether it has left its slot and is waiting."""
    paused_at: int | None = None
    """The step of the verified commit at its last pause; None if it has not paused."""
    ended: Ended | None = None
    """The end of the present attempt."""
    started_at: float | None = field(default=None, compare=False)
    """The start time of its latest job, in seconds since the epoch."""

    @property
    def state(self) -> Literal["pending", "running", "paused"] | Outcome:
        """Pending until the job is submitted, again after each pause.

        A trial that failed after a verdict to stop counts as stopped.
        """
        if self.ended is not None:
            if self.ended.outcome == "failed" and self.told_to_stop:
                return "stopped"
            return self.ended.outcome
        if self.paused:
            return "paused"
        return "pending" if self.job is None else "running"

    @property
    def last_step(self) -> int:
        """The last reported step; the first step before any report."""
        return max(self.reports, default=self.first_step)

    @property
    def value(self) -> float | None:
        """The value by which the trial is judged: the final value after completion, otherwise the last reported one.

        None for a failed trial, before the first report, and for a value that is not finite.
        """
        if self.state == "completed":
            return self.ended.value if self.ended else None
        if self.state == "failed":
            return None
        return self.reports.get(self.last_step)

    @property
    def is_waiting(self) -> bool:
        """Whether it has reached `until` and waits there for a decision."""
        return self.paused and self.paused_at == self.until and not self.told_to_stop and self.ended is None


@dataclass(frozen=True)
class RungArrival:
    """The arrival of a trial at a rung, with its value there."""

    trial: int
    rung: int
    value: float | None


@dataclass(frozen=True)
class TrialObservation:
    """The result of a trial that is over, for the sampler."""

    parameters: Parameters
    value: float | None
    """Lower is better; None, the worst value, for a trial that failed or diverged."""
    stopped_at: int | None = None
    """The step at which the trial was stopped early; None for a trial of full length."""
