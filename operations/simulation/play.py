"""A play: one history of a scenario, drawn with a seed, all of its failures at once as arrays.

A failure comes after an exponential time of running (a Poisson process while the training runs), also while it starts
again: then it starts again anew. What was done since the last checkpoint is lost. A broken node is repaired in an
exponential time; who takes its place is a spare, else the training shrinks or waits. That the failures of a shrunken
training are a little rarer is left out.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slipway.operations.simulation.settings import SILENT, Scenario
from slipway.trainer.base.units import DAY, HOUR
from slipway.trainer.checkpoint.saving.interval import optimal_seconds

Values = npt.NDArray[np.float64]
MAX_TRIES = 10_000
"""Of one restart: a cluster that breaks before it has started is drawn no further."""


@dataclass(frozen=True)
class SimulatedTime:
    """What the time of a play was spent on, in seconds of the whole training."""

    scenario: Scenario
    interval: float
    """Seconds of steps between two checkpoints."""
    failures: int
    seconds: float
    """In all."""
    steps: float
    """Of steps that were kept."""
    checkpoints: float
    repeated: float
    """Steps that were lost and done again."""
    undetected: float
    restarting: float
    """Restart, restore and the first step, those that broke in the middle too."""
    missing: float
    """Nodes that were broken and had no spare: a share of the training, or all of it while it waited."""
    by_cause: dict[str, float]
    """Lost seconds, all but checkpoints, by cause."""
    short: float
    """The share of failures that found no spare."""

    @property
    def ettr(self) -> float:
        """The share of the time that went into steps that were kept."""
        return self.steps / self.seconds


def play(scenario: Scenario, seed: int = 0) -> SimulatedTime:
    """One history of the scenario; the same seed gives the same."""
    random = np.random.default_rng(seed)
    interval = scenario.interval or optimal_seconds(scenario.stall, scenario.between)
    names, takes, chances = _causes(scenario)
    horizon = scenario.days * DAY
    expected = int(horizon / scenario.between)
    count = expected + 6 * int(expected**0.5) + 10
    ups = random.exponential(scenario.between, count)
    which = random.choice(len(names), count, p=chances)
    detection = np.where(np.isin(names, SILENT), scenario.hang, scenario.detect)[which]
    tried = _restarts(scenario, count, random)
    lost, saved = _work(ups, interval, scenario.stall)
    if scenario.replicas > 1:
        # One group of ranks is away meanwhile, and comes back with the state of the others: no step is lost.
        share = 1 / scenario.replicas
        lost = 0 * lost
        detection = detection * share
        tried = tried * share + 2 * scenario.pause
    ends = np.cumsum(ups + detection + tried)
    node_waits, short, gone = _missing(scenario, ends, takes[which], random)
    ends += np.cumsum(node_waits)
    n = int(np.searchsorted(ends, horizon))
    spent = ends[n - 1] if n else 0.0
    rest = max(0.0, horizon - spent)  # the last stretch runs to the end without a failure, as far as it is played
    rest_saved = rest * scenario.stall / (interval + scenario.stall)
    running = ups[:n].sum() - lost[:n].sum() - saved[:n].sum() + rest - rest_saved
    absent = min(running, gone[:n].sum())
    costs = (lost + detection + tried + node_waits + gone)[:n]
    sums = np.bincount(which[:n], costs, len(names))
    return SimulatedTime(
        scenario,
        interval,
        n,
        horizon,
        float(running - absent),
        float(saved[:n].sum() + rest_saved),
        float(lost[:n].sum()),
        float(detection[:n].sum()),
        float(tried[:n].sum()),
        float(node_waits[:n].sum() + absent),
        {name: float(lost_seconds) for name, lost_seconds in zip(names, sums, strict=True) if lost_seconds},
        float(short[:n].mean()) if n else 0.0,
    )


def _causes(scenario: Scenario) -> tuple[list[str], npt.NDArray[np.bool_], Values]:
    weights = np.array([weight for weight, _ in scenario.causes.values()], dtype=np.float64)
    takes = np.array([taken for _, taken in scenario.causes.values()])
    return list(scenario.causes), takes, weights / weights.sum()


def _work(ups: Values, interval: float, stall: float) -> tuple[Values, Values]:
    """Of each time of running: the seconds since the last checkpoint, and those that checkpoints took."""
    cycle = interval + stall
    cycles = np.floor(ups / cycle)
    return ups - cycles * cycle, cycles * stall


def _restarts(scenario: Scenario, count: int, random: np.random.Generator) -> Values:
    """The seconds of each recovery after it was noticed, with the tries that broke before they were done."""
    once = scenario.restart + scenario.restore + scenario.warm_up
    broken = -np.expm1(-once / scenario.between)
    tries = np.minimum(random.geometric(1 - broken, count) - 1, MAX_TRIES) if broken > 0 else np.zeros(count, int)
    # A try that broke did so at an exponential moment before its end; it had to be noticed too.
    moments = -scenario.between * np.log1p(-random.random(int(tries.sum())) * broken)
    wasted = np.bincount(np.repeat(np.arange(count), tries), moments + scenario.detect, count)
    return np.asarray(once + wasted, dtype=np.float64)


def _missing(
    scenario: Scenario, ends: Values, takes: npt.NDArray[np.bool_], random: np.random.Generator
) -> tuple[Values, npt.NDArray[np.bool_], Values]:
    """Of each failure: seconds of waiting for a node, whether it found no spare, and seconds that shrinking cost."""
    repairs = random.exponential(scenario.repair_hours * HOUR, len(ends))
    node_waits = np.zeros(len(ends))
    short = np.zeros(len(ends), dtype=bool)
    gone = np.zeros(len(ends))
    at = ends[takes]
    if not len(at):
        return node_waits, short, gone
    backs = np.sort(at + repairs[takes])
    broken = np.arange(1, len(at) + 1) - np.searchsorted(backs, at)
    no_spare = broken > scenario.spares
    # The first node that comes back takes its place.
    until = backs[np.maximum(np.arange(len(at)) - scenario.spares, 0)]
    seconds = np.where(no_spare, np.maximum(0.0, until - at), 0.0)
    short[takes] = no_spare
    (gone if scenario.shrinks else node_waits)[takes] = seconds / (scenario.nodes if scenario.shrinks else 1)
    return node_waits, short, gone
