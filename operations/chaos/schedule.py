"""The schedule: which fault comes when. Pure, and the same for the same seed."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MAX_FAULTS = 10_000
"""So many faults are drawn at most: one a second for nearly three hours."""


@dataclass(frozen=True)
class PlannedFault:
    """A fault that is to come."""

    at: float
    """Seconds after the begin."""
    fault: str
    """Its name in `slipway.operations.chaos.faults`."""
    draw: float
    """From 0 to 1: which of the processes that there are then."""


def drawn(faults: Sequence[str], seed: int, seconds: float, every: float) -> list[PlannedFault]:
    """Faults within so many seconds, with exponentially distributed pauses of `every` seconds on average.

    Each kind comes once before one comes again, in an order that the seed draws, so that a short run has as many kinds
    as there is time for. Raises ValueError without a fault, and for times that are not above 0.
    """
    if not faults:
        raise ValueError("faults: found none, expected one or more")
    for name, value in (("minutes", seconds / 60), ("every", every)):
        if not math.isfinite(value) or value <= 0:
            raise ValueError(f"{name}: found {value:g}, expected a number above 0")
    if seconds / every > MAX_FAULTS:
        count = seconds / every
        raise ValueError(f"every: found {every:g}, which gives {count:,.0f} faults, expected {MAX_FAULTS:,} at most")
    source = random.Random(seed)
    planned = list[PlannedFault]()
    remaining = list[str]()
    at = source.expovariate(1 / every)
    while at < seconds:
        remaining = remaining or source.sample(sorted(faults), len(faults))
        planned.append(PlannedFault(at, remaining.pop(), source.random()))
        at += source.expovariate(1 / every)
    return planned


def left_out(planned: Sequence[PlannedFault], done: Sequence[str]) -> list[str]:
    """The names of the planned faults that were not done, each as often as it was not; `done` are names."""
    return sorted((Counter(entry.fault for entry in planned) - Counter(done)).elements())
