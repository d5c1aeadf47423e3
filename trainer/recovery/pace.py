"""The pace of a rank: how long its last steps took, from which deadlines and stragglers are found. Pure."""

from collections import deque

from slipway.trainer.recovery.statistics import median

WINDOW = 64
FEWEST = 16
"""Before so many steps nothing is said: the first ones warm up."""
OWN_SECONDS = 20.0
"""The own part is of the steps of so many seconds, `FEWEST` at most: where steps are long, more of them would be
minutes old, and a rank that has become slow would look well for as long."""
OWN_FEWEST = 5
"""So many steps in any case: one or two of them may be slow by chance."""


class StepPace:
    """The last steps of one rank. To add one takes a few microseconds."""

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._own: deque[float] = deque(maxlen=FEWEST)

    @property
    def longest(self) -> float:
        """Seconds of the longest of the last steps; 0 before there is one."""
        return max(self._steps, default=0.0)

    def add(self, seconds: float, own: float) -> tuple[float, float]:
        """Take in a step that took so many seconds, `own` of them without waiting.

        Returns the seconds of the longest of the last steps, and the median of the own ones of the very last; 0 before
        there are enough.
        """
        self._steps.append(seconds)
        self._own.append(own)
        if len(self._steps) < FEWEST:
            return 0.0, 0.0
        return max(self._steps), median(list(self._own)[-self._recent() :])

    def _recent(self) -> int:
        """How many of the last steps took `OWN_SECONDS` together."""
        spent, count = 0.0, 0
        for seconds in reversed(self._steps):
            spent, count = spent + seconds, count + 1
            if spent >= OWN_SECONDS:
                break
        return max(OWN_FEWEST, min(FEWEST, count))
