"""The pace of a rank: how long its last steps took, from which deadlines and stragglers are found. Pure."""

from collections import deque

from trainer.recovery.statistics import median

WINDOW = 64
FEWEST = 16
"""Before so many steps nothing is said: the first ones warm up."""


class StepPace:
    """The last steps of one rank. To add one takes a microsecond; the figures are made every few steps."""

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._own: deque[float] = deque(maxlen=FEWEST)

    def add(self, seconds: float, own: float) -> bool:
        """Take in a step that took so many seconds, `own` of them without waiting; whether there are new figures."""
        self._steps.append(seconds)
        self._own.append(own)
        return len(self._steps) >= FEWEST

    @property
    def longest(self) -> float:
        """Seconds of the longest of the last steps."""
        return max(self._steps)

    @property
    def own(self) -> float:
        """Median seconds of the last steps without waiting."""
        return median(self._own)
