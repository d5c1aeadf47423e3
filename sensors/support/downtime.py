"""Downtime: for how long nothing looked after trainings, as a control plane that was down cannot say so itself.

The job watch leaves the time of a tick beside the trainings. A tick that finds it long ago notes in the ledgers of the
trainings that are open that nobody was there meanwhile: their lost time has that name then.
"""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, codec
from slipway.trainer.record.accounting.bookkeeper import NOTICE_SECONDS

RECORD = ".watched.json"
EVERY_SECONDS = 15.0
"""A tick writes the record when it is older than this."""


@dataclass(frozen=True)
class LastWatched:
    """When a tick last looked, in seconds since the epoch."""

    at: float


def seconds(root: Path) -> float:
    """How long ago the last look was, if that is too long for a control plane that is there; 0 otherwise.

    From now on, the last look is this one. A record that cannot be read or written says nothing.
    """
    now = time.time()
    gone = 0.0
    last = None
    with contextlib.suppress(OSError, ValueError):
        last = codec.read(root / RECORD, LastWatched)
    if last is not None:
        gone = now - last.at
    if last is None or gone > EVERY_SECONDS or gone < 0:
        with contextlib.suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            atomic.replace(root / RECORD, codec.encode(LastWatched(now)), lasting=False)
    return gone if gone > NOTICE_SECONDS else 0.0
