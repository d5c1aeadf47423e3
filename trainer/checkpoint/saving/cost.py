"""Cost: what a save costs the steps, in seconds: the stall, and what the writing takes from the steps beside it.

The stall is the time in which a rank's tensors are copied. Then a writer works beside the steps: it takes memory
bandwidth, processors and the disk, and a rank that waits for any of them holds up all others. Both show in the time of
rank 0's steps, as every step waits for the slowest rank. Before the first save the cost follows from the bytes.
"""

PRIOR_BYTES_PER_SECOND = 1e9
"""What copying out of a GPU and writing give at least on a node that is fit to train."""
BESIDE = 0.1
"""The share of the writer's time that a save costs at least, where slower steps do not show more: steps vary."""
SMOOTHING = 0.1
"""The weight of a new step in the mean of the steps without a save."""


class SaveCost:
    """Measures what a save costs; rank 0 does."""

    def __init__(self) -> None:
        self._prior = 0.0
        self._measured: float | None = None
        self._quiet: float | None = None
        self._slower = 0.0

    @property
    def seconds(self) -> float:
        """What the next save is expected to cost."""
        return self._prior if self._measured is None else self._measured

    def expect(self, size: int) -> None:
        """A rank's part of a checkpoint has `size` bytes."""
        self._prior = size / PRIOR_BYTES_PER_SECOND

    def add_step(self, seconds: float, saving: bool) -> None:
        """A step took `seconds`; `saving`: while a checkpoint was being written."""
        if not saving:
            self._quiet = seconds if self._quiet is None else self._quiet + SMOOTHING * (seconds - self._quiet)
        elif self._quiet is not None:
            self._slower += seconds - self._quiet

    def add_save(self, blocked: float, seconds: float) -> None:
        """A save blocked the steps for `blocked` seconds and took `seconds` in all."""
        cost = blocked + max(self._slower, BESIDE * max(0.0, seconds - blocked))
        self._measured = cost if self._measured is None else (self._measured + cost) / 2
        self._slower = 0.0
