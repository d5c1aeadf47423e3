"""One trial of a sweep: where it stands, and what it has reported."""

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
    """Where it is going: the step at which it pauses, or the full length."""
    parent: int | None = None
    """The trial that it continues, for a child in population-based training."""
    first_step: int = 0
    """Where it began: 0, or the step of the parent's commit."""
    drawn_after: int = 0
    """How many trials were over when it was asked."""
    attempt: int = 0
    """The number of retries so far."""
    job: str | None = None
    """The job that it has now, once that is submitted."""
    nodes: tuple[str, ...] = ()
    reports: Mapping[int, float | None] = field(default_factory=dict)
    """The value at each step reported; the first report of a step holds."""
    told_to_stop: bool = False
    """Whether the last verdict on it was to stop."""
    paused: bool = False
    """Whether it has left its slot and waits."""
    paused_at: int | None = None
    """The step of the verified commit that it left its slot with last; None for one that never did."""
    ended: Ended | None = None
    """How the present attempt ended."""
    started_at: float | None = field(default=None, compare=False)
    """When its latest job was started, in seconds since the epoch."""

    @property
    def state(self) -> Literal["pending", "running", "paused"] | Outcome:
        """Pending until the job is submitted, anew each time that it goes on.

        A trial that failed after its verdict was to stop counts as stopped.
        """
        if self.ended is not None:
            return "stopped" if self.ended.outcome == "failed" and self.told_to_stop else self.ended.outcome
        if self.paused:
            return "paused"
        return "pending" if self.job is None else "running"

    @property
    def last_step(self) -> int:
        """The last step reported; where it began before the first report."""
        return max(self.reports, default=self.first_step)

    @property
    def value(self) -> float | None:
        """What a trial is judged by: its final value once it has completed, else the last one that it reported.

        None for one that failed, that has no report yet, and whose value is not finite.
        """
        if self.state == "completed":
            return self.ended.value if self.ended else None
        return None if self.state == "failed" else self.reports.get(self.last_step)

    @property
    def is_waiting(self) -> bool:
        """Whether it has come to where it was going, and waits there for a decision."""
        return self.paused and self.paused_at == self.until and not self.told_to_stop and self.ended is None


@dataclass(frozen=True)
class RungArrival:
    """The arrival of a trial at a rung, with its value there."""

    trial: int
    rung: int
    value: float | None


@dataclass(frozen=True)
class TrialObservation:
    """The result of a trial that is over, as the sampler gets it."""

    parameters: Parameters
    value: float | None
    """Lower is better; None, the worst value, for a trial that failed or diverged."""
    stopped_at: int | None = None
    """The step at which the trial was stopped early; None for a trial of full length."""
