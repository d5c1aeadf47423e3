"""Asynchronous successive halving by promotion: a trial pauses at a rung with a commit, and the best trials continue.

Source: ASHA, Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020 (arXiv:1810.05934):
whenever a slot is free, the best trial that is among the best floor(n / eta) of the n that came to a rung goes on, the
highest rung first; without one, a new trial begins.

Four things are added. Where trials are drawn whatever the others found, all of them come to their first rung before any
goes on (`slipway.assets.sweeps.decisions`), so that the best are chosen among all. Once no trial can come to a rung any
more, the best ceil(n / eta) go on: floor(n / eta) is 0 at the last rungs of a small sweep. The best two of a rung go on
while they are tied within the noise. And a trial pauses only where that is worth while: a restart costs less than a
tenth of the steps to the next rung. Elsewhere it keeps its slot and is judged as it arrives, as in `stopping`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slipway.assets.sweeps.events import Decided, Resumed
from slipway.assets.sweeps.schedulers import ties
from slipway.assets.sweeps.schedulers.stopping import judged
from slipway.assets.sweeps.state import RungArrival, SweepState

WORTH = 10
"""A trial pauses at a rung if the steps to the next one are at least this many times the cost of a restart."""


@dataclass(frozen=True)
class PromotionHalving:
    """Halving among all trials."""

    rungs: tuple[int, ...]
    """The rungs below the full length."""
    steps: int
    eta: int
    noise: float | None
    restart_steps: float

    def until(self, number: int, step: int) -> int:
        return next((rung for rung in self.pauses if rung > step), self.steps)

    def judge(self, sweep: SweepState) -> Decided | None:
        return judged(sweep, sweep.unjudged, self.eta, self.noise)

    def go_on(self, sweep: SweepState) -> Resumed | None:
        for is_last, rung in chances(sweep, self.pauses):
            arrivals = sweep.arrivals.get(rung, ())
            number = promoted(sweep, arrivals, rung, self.eta, self.noise, is_last)
            if number is not None:
                return Resumed(trial=number, until=self.until(number, rung))
        return None

    @property
    def pauses(self) -> tuple[int, ...]:
        """The rungs at which a trial pauses."""
        ends = (*self.rungs[1:], self.steps)
        return tuple(
            rung for rung, end in zip(self.rungs, ends, strict=True) if WORTH * self.restart_steps <= end - rung
        )


def chances(sweep: SweepState, rungs: Sequence[int]) -> Iterator[tuple[bool, int]]:
    """(whether no more trials can arrive, rung) in the order in which to look for a trial that continues.

    All rungs come first as rungs that still expect trials, then the complete rungs. The highest rung comes first.
    """
    for rung in reversed(rungs):
        yield False, rung
    if sweep.drawn < sweep.budget.trials or sweep.retryable:
        return
    lowest = min((trial.last_step for trial in sweep.running), default=sweep.plan.steps)
    for rung in reversed(rungs):
        if lowest >= rung:
            yield True, rung


def promoted(
    sweep: SweepState, arrivals: Sequence[RungArrival], rung: int, eta: int, noise: float | None, is_last: bool
) -> int | None:
    """The trial that continues from a rung now, if any: one of the best floor(n / eta), rounded up once all arrived."""
    ranked = [arrival for arrival in arrivals if arrival.value is not None and arrival.trial not in sweep.failed_trials]
    ranked.sort(key=lambda arrival: arrival.value or 0.0)
    share = -(-len(arrivals) // eta) if is_last else len(arrivals) // eta
    for candidate in ranked[:share]:
        if _waits_at(sweep, candidate.trial, rung):
            return candidate.trial
    if share == 1 < len(ranked) and _waits_at(sweep, ranked[1].trial, rung):
        best, second = ranked[:2]
        assert best.value is not None and second.value is not None
        second_reports = sweep.trials[second.trial].reports
        other = sweep.trials[best.trial].reports
        if ties.are_tied(best.value, second.value, (second_reports, other), rung, noise):
            return second.trial
    return None


def _waits_at(sweep: SweepState, number: int, rung: int) -> bool:
    trial = sweep.trials[number]
    return trial.is_waiting and trial.paused_at == rung
