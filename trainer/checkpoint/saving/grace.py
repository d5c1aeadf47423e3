"""Grace: whether the last checkpoint of a stop fits between SIGTERM and SIGKILL, said before one is asked for."""

import os
import sys
from collections.abc import Callable

from trainer.checkpoint.tiers.tier import LASTING

VARIABLE = "SLIPWAY_GRACE_SECONDS"
"""Between SIGTERM and SIGKILL; whoever starts the ranks sets it."""
CHANGED = 1.5
"""It is said again when a save takes so many times as long as it did then."""


class StopGrace:
    """Tells once that saves take longer than the grace, and again when they take much longer."""

    def __init__(self, record: Callable[..., None]) -> None:
        """`record` writes an event to the ledger."""
        self._record, self._said = record, 0.0
        self._grace = float(os.environ.get(VARIABLE) or 0.0)

    def saved(self, step: int, seconds: float, tier: str) -> None:
        """A save on `tier` took so many seconds. Only those on tiers that outlive the nodes end a stop."""
        if not self._grace or tier not in LASTING or seconds <= max(self._grace, CHANGED * self._said):
            return
        self._said = seconds
        told = sentence(self._grace, seconds, step)
        self._record("grace_too_short", step=step, grace=self._grace, seconds=seconds, reason=told)
        print(f"trainer: {told}\n", end="", file=sys.stderr, flush=True)


def sentence(grace: float, seconds: float, step: int) -> str:
    """What a stop would come to, for a person."""
    return (
        f"the grace of {grace:.0f} s is shorter than the last save took, {seconds:.0f} s: a stop now falls back to "
        f"step {step} or a later checkpoint; a longer grace is placement.kubernetes.grace_seconds"
    )
