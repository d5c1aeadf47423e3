"""Patience: a request that may succeed later is repeated after growing pauses, for a bounded time."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

SECONDS = 30.0
"""How long a server may be away before a request to it fails."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 3.0

Value = TypeVar("Value")


def patiently(ask: Callable[[], Value], passing: type[Exception], seconds: float | None = None) -> Value:
    """The value of `ask()`, called again while it raises `passing`; after `seconds` (`SECONDS`) that error is raised.

    Each pause is twice the one before, and a random share of up to a half shorter, so that many nodes do not call
    again all at once.
    """
    deadline = time.monotonic() + (SECONDS if seconds is None else seconds)
    pause = FIRST_PAUSE
    while True:
        try:
            return ask()
        except passing:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, LONGEST_PAUSE)
