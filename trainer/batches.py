"""Batches: one rank's windows of each step, the next step's read while the present one is trained on.

So a cold disk, or a shard that is still on its way, costs time only where it takes longer than a step.
"""

import threading
from concurrent.futures import Future

import numpy as np
import torch

from trainer.data import Sequences, Tokens
from trainer.order import Order


class Batches:
    """The rows `mine` of each step's `size` windows, in `order`; nothing is read ahead from step `steps` on."""

    def __init__(
        self, sequences: Sequences, order: Order, size: int, mine: slice, steps: int, pinned: bool = False
    ) -> None:
        """`pinned` keeps the windows in memory that a GPU can copy from while the processor goes on."""
        self._sequences, self._order, self._size, self._mine, self._steps = sequences, order, size, mine, steps
        self._buffers: Tokens = np.empty((2, mine.stop - mine.start, sequences.length + 1), sequences.dtype)
        if pinned:
            self._buffers = torch.from_numpy(self._buffers).pin_memory().numpy()
        self._ahead: tuple[int, Future[Tokens]] | None = None

    def windows(self, step: int) -> Tokens:
        """The windows of `step`: [rows, length + 1], good until the next call.

        Raises what bringing and opening a shard raise, at the step that needs it.
        """
        expected, reading = self._ahead or (-1, None)
        self._ahead = None
        here = reading.result() if reading and expected == step else self._read(step)
        if step + 1 < self._steps:
            self._ahead = step + 1, self._begin_to_read(step + 1)
        return here

    def _read(self, step: int) -> Tokens:
        numbers = self._order.samples(step * self._size, self._size)[self._mine]
        return self._sequences.read(numbers, self._buffers[step % 2])

    def _begin_to_read(self, step: int) -> Future[Tokens]:
        """Read in a thread that dies with the process; an executor's would keep a process that wants to end."""
        future: Future[Tokens] = Future()

        def read() -> None:
            try:
                future.set_result(self._read(step))
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=read, name="read-ahead", daemon=True).start()
        return future
