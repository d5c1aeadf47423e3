"""Studies: what a scenario gives, its best interval, the spares that it needs, and what each improvement would buy."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slipway.operations.simulation.play import SimulatedTime, play
from slipway.operations.simulation.settings import Scenario
from slipway.trainer.checkpoint.saving.interval import optimal_seconds

FACTORS = (0.125, 0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0, 8.0)
"""Of Daly's optimum: the intervals that are tried."""
ENOUGH = 0.99
"""So many failures of nodes should find a spare."""


@dataclass(frozen=True)
class Improvement:
    """A change of a scenario, and what it buys."""

    change: str
    ettr: float
    gained_days: float
    """Of steps that are kept, in the days that were played."""


def best_interval(scenario: Scenario, seed: int = 0) -> tuple[float, float]:
    """The interval with the largest share of kept steps among multiples of Daly's optimum, and Daly's optimum."""
    daly = optimal_seconds(scenario.stall, scenario.between)
    plays = [play(replace(scenario, interval=daly * factor), seed) for factor in FACTORS]
    return max(plays, key=lambda played: played.ettr).interval, daly


def spares_needed(scenario: Scenario, seed: int = 0) -> int:
    """The fewest spare nodes so that `ENOUGH` of the failures find one; found by bisection."""
    low = 0
    high = 1
    while _short(scenario, high, seed) > 1 - ENOUGH and high < scenario.nodes:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _short(scenario, middle, seed) <= 1 - ENOUGH else (middle + 1, high)
    return low


def improvements(scenario: Scenario, seed: int = 0) -> list[Improvement]:
    """What each change alone would buy, the best first."""
    now = play(scenario, seed)
    changed = [(change, play(better, seed)) for change, better in _changes(scenario, now)]
    days = scenario.days
    gains = [Improvement(change, after.ettr, (after.ettr - now.ettr) * days) for change, after in changed]
    return sorted(gains, key=lambda gain: -gain.ettr)


def _changes(scenario: Scenario, now: SimulatedTime) -> Iterator[tuple[str, Scenario]]:
    base = replace(scenario, interval=now.interval)
    yield "half the time to detect", replace(base, detect=base.detect / 2, hang=base.hang / 2)
    yield "a restart in 1 s, from warm processes", replace(base, restart=min(base.restart, 1.0))
    yield "half the time to restore", replace(base, restore=base.restore / 2)
    yield "half the time of the first step", replace(base, warm_up=base.warm_up / 2)
    yield "checkpoints twice as often", replace(base, interval=now.interval / 2)
    yield "half the stall of a checkpoint, at its own best interval", replace(base, stall=base.stall / 2, interval=0.0)
    yield "half as many failures", replace(base, failures_per_gpu_day=base.failures_per_gpu_day / 2)
    if (needed := spares_needed(base)) > base.spares:
        yield f"{needed} spare nodes", replace(base, spares=needed)
    if base.replicas == 1 and base.nodes >= 8:
        yield "8 replicas, of which the others go on", replace(base, replicas=8, pause=max(1.0, base.stall))


def _short(scenario: Scenario, spares: int, seed: int) -> float:
    return play(replace(scenario, spares=spares), seed).short
