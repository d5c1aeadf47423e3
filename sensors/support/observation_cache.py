"""Observation cache: what a sensor has seen in the event log and on disk; it looks again where something changes.

It is a saving and no truth: it lives in this process, and is forgotten when the event log is not the one that it was (a
backup was restored, so that its newest record is older), and after some time in any case: that of each training at a
moment of its own, so that no tick has to look at all of them at once.

Whether something changed on disk is seen by the times of the folders of a training's records: each record is a new
file. Two changes may carry one time, as file systems count in steps; so a look counts only when the time had stood
still for a while before it, by this process's own clock.
"""

import os
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg

from slipway.resources.event_log import newest_record
from slipway.trainer.record import files

Entry = TypeVar("Entry")
LASTS_SECONDS = 60.0
"""What was seen is believed for so long: what a person deletes in the UI comes back after that."""
SETTLED_SECONDS = 2.0
"""More than the step in which any file system counts."""

_memories: dict[tuple[str, Path], "SensorMemory"] = {}


@dataclass
class Look:
    """When a training's folders were last seen to change, and whether there was nothing to do since."""

    phase: float
    """When it is forgotten, as a part of `LASTS_SECONDS`."""
    lifetime: int = -1
    """In which of its lifetimes, of `LASTS_SECONDS` each, it was last asked for."""
    times: tuple[int, ...] = ()
    since: float = 0.0
    begun: float = 0.0
    """When the last look began."""
    quiet: bool = False
    """Whether a look that counts found nothing to do."""


@dataclass
class SensorMemory:
    """What one sensor remembers of the trainings of one folder."""

    record: int = 0
    new: bool = True
    """Whether this is the first tick of this process, or the first over another event log."""
    entries: dict[str, Any] = field(default_factory=dict)
    lasting: dict[str, Any] = field(default_factory=dict)
    """What only another event log takes away."""
    looks: dict[str, Look] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic

    def of(self, id: str, fresh: Entry) -> Entry:
        """What is kept of a training; `fresh` when there is nothing yet."""
        entry: Entry = self.entries.setdefault(id, fresh)
        return entry

    def lasting_of(self, id: str, fresh: Entry) -> Entry:
        """The same for what only another event log takes away."""
        entry: Entry = self.lasting.setdefault(id, fresh)
        return entry

    def is_quiet(self, id: str, folders: Iterable[str]) -> bool:
        """Whether the last look at a training found nothing to do, and these folders have not changed since.

        What is kept of a training is forgotten here when its time has come.
        """
        now = self.clock()
        times = _times(folders)
        look = self._look(id)
        if look.lifetime != (lifetime := int(now / LASTS_SECONDS + look.phase)):
            look.lifetime = lifetime
            look.quiet = False
            self.entries.pop(id, None)
        if times != look.times:
            look.times = times
            look.since = now
            look.quiet = False
        look.begun = now
        return look.quiet

    def _look(self, id: str) -> Look:
        if (look := self.looks.get(id)) is None:
            look = self.looks[id] = Look(phase=zlib.crc32(id.encode()) / 2**32)
        return look

    def found_nothing(self, id: str) -> None:
        """The look that follows the last `is_quiet` found nothing to do."""
        look = self.looks[id]
        look.quiet = look.begun - look.since >= SETTLED_SECONDS

    def keep_only(self, ids: Iterable[str]) -> None:
        """Forget all other trainings."""
        present = set(ids)
        for table in (self.entries, self.lasting, self.looks):
            for id in table.keys() - present:
                del table[id]


def recalled(instance: dg.DagsterInstance, sensor: str, root: Path) -> SensorMemory:
    """What a sensor remembers of the trainings below `root`."""
    record = newest_record(instance)
    memory = _memories.get((sensor, root))
    if memory is None or record < memory.record:
        memory = _memories[sensor, root] = SensorMemory()
    else:
        memory.new = False
    memory.record = record
    return memory


def decisive(training: Path) -> list[str]:
    """What changes when what is desired of a training, its claim, its end, its terms or a record of its jobs does."""
    below = f"{training}/"
    return [below + name for name in (files.DESIRED, files.CLAIMS, files.EXITS, files.JOBS, files.RUN_POLICY)]


def _times(folders: Iterable[str]) -> tuple[int, ...]:
    """When each folder was last changed, 0 for one that is not there. Raises OSError."""
    return tuple(map(_time, folders))


def _time(folder: str) -> int:
    """This is asked some times for each open training in each tick, so no object is made for it."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116
    except FileNotFoundError:
        return 0
