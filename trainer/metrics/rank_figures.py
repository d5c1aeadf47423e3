"""Rank figures: what differs between ranks (the times of a step's parts, cores, memory), recorded by each for itself.

What all ranks know is in the step events of rank 0. Each rank of several adds the means over its last steps, in a
segment of its own; the more ranks there are, the more seldom. So a training of any size writes less than one such event
a second.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping

from slipway.trainer.record.recorder import RankRecorder

EVENT, WRITER = "rank_figures", "figures"
EVERY_SECONDS = 10.0
"""Between two events of a rank among `RANKS` or fewer; of more ranks, longer in proportion."""
RANKS = 8
SECONDS = ("data", "forward", "backward", "optimiser", "communication")
USAGE = ("cpu_cores", "host_memory", "gpu_use", "gpu_memory")


class RankFigures:
    """The figures of one rank of a world of `size`; a world of one has none beside its steps."""

    def __init__(self, recorder: RankRecorder, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._recorder, self._records, self._clock = recorder, size > 1, clock
        self._every, self._since = EVERY_SECONDS * max(1.0, size / RANKS), clock()
        self._step = self._steps = 0
        self._parts: Counter[str] = Counter()
        self._usage: Mapping[str, float] = {}

    def add(self, step: int, parts: Mapping[str, float], usage: Mapping[str, float]) -> None:
        """A step was done, with the seconds of its parts and the newest figures of use."""
        self._step, self._steps, self._usage = step, self._steps + 1, usage
        self._parts.update(parts)
        if self._clock() - self._since >= self._every:
            self.tell()

    def tell(self) -> None:
        """Record the means since the last time; nothing when no step was done since."""
        if self._records and self._steps:
            seconds = {f"{name}_seconds": self._parts[name] / self._steps for name in SECONDS if name in self._parts}
            usage = {name: self._usage[name] for name in USAGE if name in self._usage}
            figures = {"steps": self._steps, **seconds, **usage}
            self._recorder.record_own(WRITER, EVENT, step=self._step, figures=figures)
        self._since, self._steps = self._clock(), 0
        self._parts.clear()
