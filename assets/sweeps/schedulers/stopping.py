"""Asynchronous successive halving by stopping: a trial is judged on arrival at each rung, and never waits.

Source: ASHA, Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020 (arXiv:1810.05934). The
paper promotes the best floor(n / eta) trials of a rung and lets the others wait there, as `promotion` does. Here each
trial is judged once, when it arrives, against those that arrived before it, and stops unless it is among the best
ceil(n / eta). Rounding up lets the first arrival go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slipway.assets.sweeps.events import Decided, Verdict
from slipway.assets.sweeps.schedulers import ties
from slipway.assets.sweeps.state import RungArrival, SweepState


@dataclass(frozen=True)
class StoppingHalving:
    """Of the trials at a rung so far, one in `eta` continues, and the best two as long as they are tied."""

    steps: int
    eta: int
    noise: float | None

    def until(self, number: int, step: int) -> int:
        return self.steps

    def judge(self, sweep: SweepState) -> Decided | None:
        return judged(sweep, sweep.unjudged, self.eta, self.noise)

    def go_on(self, sweep: SweepState) -> None:
        return None


def judged(
    sweep: SweepState,
    arrivals: Sequence[RungArrival],
    eta: int,
    noise: float | None,
    peers: Sequence[RungArrival] | None = None,
) -> Decided | None:
    """The verdict on the first of these arrivals, in comparison with earlier arrivals at its rung.

    `peers` are the trials of its rung to compare with, if not all.
    """
    for arrival in arrivals:
        at_rung = sweep.arrivals[arrival.rung] if peers is None else peers
        earlier = at_rung[: at_rung.index(arrival)]
        decision = verdict([arrival.value for arrival in earlier], arrival.value, eta)
        if decision == "stop" and _tied_with_the_best(sweep, earlier, arrival, noise):
            decision = "go on"
        return Decided(trial=arrival.trial, step=arrival.rung, verdict=decision)
    return None


def verdict(earlier: Sequence[float | None], value: float | None, eta: int) -> Verdict:
    """Whether a trial that arrives at a rung with `value` continues; lower is better, None (not finite) stops.

    `earlier` are the values of the trials that arrived before, in any order, whether or not they were stopped.
    Of equal values the earlier ranks better, so equal trials are stopped like any others. A trial with a value below
    all earlier ones continues, so the best trial of a rung is never stopped there.
    """
    if value is None:
        return "stop"
    rank = 1 + sum(other is not None and other <= value for other in earlier)
    arrived = len(earlier) + 1
    return "go on" if rank <= -(-arrived // eta) else "stop"


def _tied_with_the_best(
    sweep: SweepState, earlier: Sequence[RungArrival], arrival: RungArrival, noise: float | None
) -> bool:
    """Whether a trial is the second of its rung, and within the noise of the first."""
    values = [(arrival.value, arrival.trial) for arrival in earlier if arrival.value is not None]
    if arrival.value is None or sum(value <= arrival.value for value, _ in values) != 1:
        return False
    best, leader = min(values)
    reports = sweep.trials[arrival.trial].reports
    other = sweep.trials[leader].reports
    return ties.are_tied(best, arrival.value, (reports, other), arrival.rung, noise)
