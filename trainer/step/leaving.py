"""Leaving: a stop that is heard in the middle of a long step ends it there; the weights are still those before it.

A rank looks between two micro-batches whether it was asked to stop, in its own memory: that costs the others nothing.
Only when a rank leaves, it tells the others, as for memory that ran out (`slipway.trainer.elastic.peers`). A step that
is nearly done is done first: to leave it costs more than to end it.
"""

import time
from collections.abc import Iterator, Sequence
from typing import overload

from slipway.trainer.base.processes import StopRequest
from slipway.trainer.step import exhaustion
from slipway.trainer.step.microbatch import MicroBatch

LONG_SECONDS = 5.0
"""A step that is expected to take longer than this yet is left."""
WORD = "asked to stop in the middle of a step"


class StepLeft(Exception):
    """All ranks have left the step; nothing of it counts."""


class Leaving:
    """Whether a rank leaves the step that it is in."""

    def __init__(self) -> None:
        self._stop: StopRequest | bool = False
        self._begun, self._usual = 0.0, 0.0

    def begin(self, stop: StopRequest | bool) -> None:
        """A step begins; `stop` is False for one that must be done once it has begun."""
        self._stop, self._begun = stop, time.monotonic()

    def end(self) -> None:
        """The step is done."""
        self._stop, self._usual = False, time.monotonic() - self._begun

    def guarded(self, parts: Sequence[MicroBatch]) -> Sequence[MicroBatch]:
        """The micro-batches; who goes through them raises StepLeft before one, when the step is to be left."""
        return parts if self._stop is False else _GuardedParts(parts, self)

    def look(self, done: int, parts: int) -> None:
        """Raises StepLeft when this rank was asked to stop, and much of the step is left."""
        if not self._stop:
            return
        passed = time.monotonic() - self._begun
        by_parts = passed / done * (parts - done) if done else 0.0
        if max(by_parts, self._usual - passed) > LONG_SECONDS:
            raise StepLeft(WORD)


class _GuardedParts(Sequence[MicroBatch]):
    """Micro-batches with a look before each."""

    def __init__(self, parts: Sequence[MicroBatch], leaving: Leaving) -> None:
        self._parts, self._leaving = parts, leaving

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> MicroBatch: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MicroBatch]: ...
    def __getitem__(self, index: int | slice) -> MicroBatch | Sequence[MicroBatch]:
        return self._parts[index]

    def __iter__(self) -> Iterator[MicroBatch]:
        for done, part in enumerate(self._parts):
            self._leaving.look(done, len(self._parts))
            yield part


def reason(error: BaseException) -> str | None:
    """Why all ranks are to leave a section of work: memory ran out, or one was asked to stop; None otherwise."""
    return WORD if isinstance(error, StepLeft) else exhaustion.reason(error)


def is_asked(reason: str) -> bool:
    """Whether ranks left a section as one was asked to stop."""
    return reason.endswith(WORD)


def raise_if_asked(reason: str) -> None:
    """Raises StepLeft where ranks left a section as one was asked to stop."""
    if is_asked(reason):
        raise StepLeft(reason)
