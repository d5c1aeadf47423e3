"""Grace: whether the end of a stop fits between SIGTERM and SIGKILL, said before one is asked for.

The end is the last checkpoint, and before it the steps that cannot be left in the middle.
"""

import os
from collections.abc import Callable

from slipway.trainer.base import console
from slipway.trainer.checkpoint.tiers.tier import LASTING

VARIABLE = "SLIPWAY_GRACE_SECONDS"
"""Between SIGTERM and SIGKILL; whoever starts the ranks sets it."""
CHANGED = 1.5
"""It is said again when a save takes so many times as long as it did then."""


class StopGrace:
    """Warns once that saves take longer than the grace, and again when they take much longer."""

    def __init__(self, record: Callable[..., None]) -> None:
        """`record` writes an event to the ledger."""
        self._record, self._said = record, 0.0
        self._grace = float(os.environ.get(VARIABLE) or 0.0)

    def saved(self, step: int, seconds: float, tier: str, before: float = 0.0) -> None:
        """A save on `tier` took so many seconds. Only those on tiers that outlive the nodes end a stop.

        `before`: the seconds that a stop may wait until it can save.
        """
        if not self._grace or tier not in LASTING or before + seconds <= max(self._grace, CHANGED * self._said):
            return
        self._said = before + seconds
        reason = sentence(self._grace, seconds, step, before)
        self._record("grace_too_short", step=step, grace=self._grace, seconds=before + seconds, reason=reason)
        console.warn(f"trainer: {reason}")


def sentence(grace: float, seconds: float, step: int, before: float = 0.0) -> str:
    """What a stop would come to, for a person."""
    save = f"the last save took, {seconds:.0f} s"
    stop = f"a stop takes, {before:.0f} s for steps that cannot be left in the middle and {seconds:.0f} s to save"
    return (
        f"the grace of {grace:.0f} s is shorter than {stop if before else save}: a stop now falls back to "
        f"step {step} or a later checkpoint; a longer grace is placement.kubernetes.grace_seconds"
    )
