"""Rank figures: figures that differ between ranks (the times of a step's parts, cores, memory); each records its own.

The step events of rank 0 have the figures that all ranks know. In a world of several ranks, each adds the means over
its last steps, in its own segment. The more ranks there are, the longer is the interval, so a training of any size
writes less than one such event a second.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping

from slipway.trainer.record.recorder import RankRecorder

EVENT = "rank_figures"
WRITER = "figures"
EVERY_SECONDS = 10.0
"""Between two events of a rank, for up to `RANKS` ranks; in proportion longer for more."""
RANKS = 8
SECONDS = ("data", "forward", "backward", "optimizer", "communication")
USAGE = ("cpu_cores", "host_memory", "gpu_use", "gpu_memory")


class RankFigures:
    """The figures of one rank of a world of `size`; a world of one has none beside its steps."""

    def __init__(self, recorder: RankRecorder, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._recorder = recorder
        self._records = size > 1
        self._clock = clock
        self._every = EVERY_SECONDS * max(1.0, size / RANKS)
        self._since = clock()
        self._step = self._steps = 0
        self._parts: Counter[str] = Counter()
        self._usage: Mapping[str, float] = {}

    def add(self, step: int, parts: Mapping[str, float], usage: Mapping[str, float]) -> None:
        """Add a step, with the seconds of its parts and the newest usage."""
        self._step = step
        self._steps = self._steps + 1
        self._usage = usage
        self._parts.update(parts)
        if self._clock() - self._since >= self._every:
            self.tell()

    def tell(self) -> None:
        """Record the means since the last record, if there was a step."""
        if self._records and self._steps:
            seconds = {f"{name}_seconds": self._parts[name] / self._steps for name in SECONDS if name in self._parts}
            usage = {name: self._usage[name] for name in USAGE if name in self._usage}
            figures = {"steps": self._steps, **seconds, **usage}
            self._recorder.record_own(WRITER, EVENT, step=self._step, figures=figures)
        self._since = self._clock()
        self._steps = 0
        self._parts.clear()
