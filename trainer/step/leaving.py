"""Leaving: a stop in the middle of a long step abandons the step there; the weights are still those before it.

A rank checks between two micro-batches whether it was asked to stop. The check reads its own memory and costs no
collective. A rank that leaves tells the others, as it does when memory runs out (`slipway.trainer.elastic.peers`). A
step that is nearly done goes on to its end, which costs less than to abandon it.
"""

import time
from collections.abc import Iterator, Sequence
from typing import overload

from slipway.trainer.base.processes import StopRequest
from slipway.trainer.step import exhaustion
from slipway.trainer.step.microbatch import MicroBatch

LONG_SECONDS = 5.0
"""A step whose remaining time is expected to be longer than this is abandoned."""
WORD = "asked to stop in the middle of a step"


class StepLeft(Exception):
    """All ranks have abandoned the step; the weights are those before it."""


class Leaving:
    """Decides whether a rank abandons its current step."""

    def __init__(self) -> None:
        self._stop: StopRequest | bool = False
        self._begun = 0.0
        self._usual = 0.0
        """Seconds of the step before."""

    def begin(self, stop: StopRequest | bool) -> None:
        """A step begins; `stop` is False for one that must not be abandoned."""
        self._stop = stop
        self._begun = time.monotonic()

    def end(self) -> None:
        """The step is done."""
        self._stop = False
        self._usual = time.monotonic() - self._begun

    def guarded(self, parts: Sequence[MicroBatch]) -> Sequence[MicroBatch]:
        """The micro-batches; iteration raises StepLeft before one if the step is to be abandoned."""
        return parts if self._stop is False else _GuardedParts(parts, self)

    def look(self, done: int, parts: int) -> None:
        """Raises StepLeft if this rank was asked to stop and the rest of the step takes longer than `LONG_SECONDS`."""
        if not self._stop:
            return
        passed = time.monotonic() - self._begun
        by_parts = passed / done * (parts - done) if done else 0.0
        if max(by_parts, self._usual - passed) > LONG_SECONDS:
            raise StepLeft(WORD)


class _GuardedParts(Sequence[MicroBatch]):
    """Micro-batches with a check before each."""

    def __init__(self, parts: Sequence[MicroBatch], leaving: Leaving) -> None:
        self._parts = parts
        self._leaving = leaving

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
    """Why all ranks must leave a section of work: memory ran out, or one was asked to stop; None for other errors."""
    if isinstance(error, StepLeft):
        return WORD
    return exhaustion.reason(error)


def is_asked(reason: str) -> bool:
    """Whether ranks left a section because one was asked to stop."""
    return reason.endswith(WORD)


def raise_if_asked(reason: str) -> None:
    """Raises StepLeft if ranks left a section because one was asked to stop."""
    if is_asked(reason):
        raise StepLeft(reason)
