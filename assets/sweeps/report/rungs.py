"""The cost of each rung of a sweep, and the savings from trials that stopped there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipway.assets.sweeps.state import SweepState
from slipway.trainer.base.units import HOUR


@dataclass(frozen=True)
class RungCost:
    """The part of a sweep between two rungs: steps `begin` to `end` of its trials."""

    begin: int
    end: int
    """The rung, or the full length of a trial."""
    trained: int
    """Trials that trained in this part."""
    arrived: int
    """Trials that reached its end."""
    went_on: int
    """Trials that continued from there."""
    steps: int
    """Steps of all trials in this part."""
    rank_hours: float
    """Rank-hours, shared out in proportion to each trial's steps in this part."""
    steps_saved: int
    """Steps that the trials stopped in this part or at its end did not train, less the steps of the children that
    replace them in population-based training."""


def rung_costs(sweep: SweepState, rungs: Sequence[int], rank_seconds: Mapping[int, float]) -> tuple[RungCost, ...]:
    """The cost of each rung, ascending; the last is the full length. `rungs` are the steps below that."""
    ends = (*rungs, sweep.plan.steps)
    return tuple(_cost(sweep, begin, end, rank_seconds) for begin, end in zip((0, *rungs), ends, strict=True))


def _cost(sweep: SweepState, begin: int, end: int, rank_seconds: Mapping[int, float]) -> RungCost:
    reached = {trial.number: (trial, trial.first_step, sweep.reached(trial)) for trial in sweep.trials.values()}
    inside = {
        number: max(0, min(last, end) - max(first, begin))
        for number, (_, first, last) in reached.items()
        if last > begin and first < end
    }
    stopped_here = [
        last
        for trial, _, last in reached.values()
        if trial.state == "stopped" and last <= end and (last > begin or begin == 0) and last < sweep.plan.steps
    ]
    begun_here = [first for trial, first, _ in reached.values() if trial.parent is not None and begin < first <= end]
    hours = sum(
        rank_seconds.get(number, 0.0) * steps / max(1, reached[number][2] - reached[number][1])
        for number, steps in inside.items()
    )
    return RungCost(
        begin=begin,
        end=end,
        trained=len(inside),
        arrived=sum(last >= end > first for _, first, last in reached.values()),
        went_on=sum(last > end > first for _, first, last in reached.values()),
        steps=sum(inside.values()),
        rank_hours=hours / HOUR,
        steps_saved=sum(sweep.plan.steps - last for last in stopped_here)
        - sum(sweep.plan.steps - first for first in begun_here),
    )
