"""The schedule: which fault comes when. Pure, and the same for the same seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedFault:
    """A fault that is to come."""

    at: float
    """Seconds after the begin."""
    fault: str
    """Its name in `operations.chaos.faults`."""
    draw: float
    """From 0 to 1: which of the processes that there are then."""


def drawn(faults: Sequence[str], seed: int, seconds: float, every: float) -> list[PlannedFault]:
    """Faults within so many seconds, with exponentially distributed pauses of `every` seconds on average.

    Each kind comes once before one comes again, in an order that the seed draws, so that a short run has as many kinds
    as there is time for. Raises ValueError without a fault, and for times that are not above 0.
    """
    if not faults:
        raise ValueError("faults: found none, expected one or more")
    for name, value in (("seconds", seconds), ("every", every)):
        if value <= 0:
            raise ValueError(f"{name}: found {value:g}, expected a number above 0")
    source, found, left = random.Random(seed), list[PlannedFault](), list[str]()
    at = source.expovariate(1 / every)
    while at < seconds:
        left = left or source.sample(sorted(faults), len(faults))
        found.append(PlannedFault(at, left.pop(), source.random()))
        at += source.expovariate(1 / every)
    return found
