"""Traces: whether anything on record of a running training has changed since the last look, for a few stats.

Who follows a hundred trainings reads those alone that have left a trace: a record that decides, or a line of the
ledger. A job may die without a trace, so that a look is due after some seconds in any case.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from slipway.trainer.base import listing
from slipway.trainer.record import files

LOOK_SECONDS = 5.0
"""A job that died without a word is found so late at most."""
DECISIVE = (files.DESIRED, files.EXITS, files.COMMITS)
"""The folders whose records change what is to be done for a training that runs. Who claims notes it in the ledger."""


@dataclass
class _Followed:
    """What one training was like at the last look. Paths are texts: some are asked for at each look."""

    folders: tuple[str, ...]
    ledger: str
    looked: float = -math.inf
    trace: tuple[int, ...] = ()
    listed: int = -1
    """When the folder of the ledger was changed, as the list of its segments is of then."""
    segments: tuple[str, ...] = ()

    def now(self) -> tuple[int, ...]:
        """When each folder was changed, and how long each segment of the ledger is. Raises OSError."""
        if (changed := _changed(self.ledger)) != self.listed:
            self.segments = tuple(f"{self.ledger}/{name}" for name in listing.names_if_there(Path(self.ledger)))
            self.listed = changed
        return (changed, *map(_changed, self.folders), *map(_size, self.segments))


@dataclass
class TrainingTraces:
    """What one process saw of the trainings that it follows."""

    clock: Callable[[], float] = time.monotonic
    _seen: dict[Path, _Followed] = field(default_factory=dict)

    def is_new(self, folder: Path) -> bool:
        """Whether a look at a training is due; the look counts as taken. Raises OSError."""
        followed = self._seen.get(folder)
        if followed is None:
            decisive = tuple(f"{folder}/{name}" for name in DECISIVE)
            followed = self._seen[folder] = _Followed(decisive, f"{folder}/{files.LEDGER}")
        now, trace = self.clock(), followed.now()
        if trace == followed.trace and now - followed.looked < LOOK_SECONDS:
            return False
        followed.looked, followed.trace = now, trace
        return True

    def forget(self, folder: Path) -> None:
        """Look again the next time, whatever has changed."""
        self._seen.pop(folder, None)


def _changed(folder: str) -> int:
    """When a folder was changed; 0 where there is none."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116
    except FileNotFoundError:
        return 0


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size  # noqa: PTH116
    except FileNotFoundError:
        return 0
