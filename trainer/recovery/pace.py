"""The pace of a rank: how long its last steps took, from which deadlines and stragglers are found. Pure."""

from collections import deque

from trainer.recovery.statistics import median

WINDOW = 64
FEWEST = 16
"""Before so many steps nothing is said: the first ones warm up."""


class StepPace:
    """The last steps of one rank. To add one takes a few microseconds."""

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._own: deque[float] = deque(maxlen=FEWEST)

    def add(self, seconds: float, own: float) -> tuple[float, float]:
        """Take in a step that took so many seconds, `own` of them without waiting.

        Returns the seconds of the longest of the last steps, and the median of their own ones; 0 before there are
        enough.
        """
        self._steps.append(seconds)
        self._own.append(own)
        return (max(self._steps), median(self._own)) if len(self._steps) >= FEWEST else (0.0, 0.0)
