"""The course of a training: what its ledger says about it in sum, in bounded memory and time, however long it is.

A ledger of a million steps has hundreds of megabytes. Its beginning and its end are read, and between them small pieces
at equal distances: a curve has fewer points than that. A ledger of some megabytes is read whole.
"""

import functools
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import journal
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.record import ledger

WHOLE_BYTES = 4 << 20
"""A ledger of so many bytes is read whole; of a longer one, about so many are read."""
PIECE_BYTES, END_BYTES = 4096, 256 << 10
"""Of a longer one: each piece, which is several lines, and each segment's beginning and end."""


@dataclass(frozen=True)
class Course:
    """What was read of a ledger."""

    events: tuple[JournalEvent, ...]
    """By segment and place; all of a short ledger, a sample of a long one. The first and the last are among them."""

    @functools.cached_property
    def steps(self) -> list[JournalEvent]:
        """The events of steps, by step; of a step that was repeated, the one of the later incarnation."""
        found = {event["step"]: event for event in self.events if event["event"] == "step"}
        return [found[step] for step in sorted(found)]

    @property
    def seconds(self) -> float:
        """From the first event to the last, 0 without any."""
        times = [float(event["t"]) for event in self.events]
        return max(times) - min(times) if times else 0.0

    @property
    def advice(self) -> str:
        """What bounds the steps, and what to do; empty before it was said."""
        return next((str(event["advice"]) for event in reversed(self.events) if event["event"] == "bound"), "")

    @property
    def staging(self) -> str:
        """What a node last held of the snapshot, and the sizes that led to it; empty where nothing is on record."""
        held = [f"{event['kind']}: {event['why']}" for event in self.events if event["event"] == "staging"]
        return held[-1] if held else ""

    @property
    def datasets(self) -> dict[str, dict[str, float]]:
        """What was last said to be read of each dataset of a mix: tokens and passes; empty for one dataset."""
        return next((dict(event["datasets"]) for event in reversed(self.events) if event["event"] == "mixed"), {})


def read(folder: Path) -> Course:
    """The course of the training in `folder`. Raises OSError."""
    sizes = {path: path.stat().st_size for path in ledger.segments(folder)}
    whole = sum(sizes.values()) <= WHOLE_BYTES
    if whole:
        return Course(tuple(event for path in sizes for event in journal.read(path).events))
    total = sum(sizes.values())
    sampled = (_sampled(path, size, WHOLE_BYTES * size // total) for path, size in sizes.items())
    return Course(tuple(journal.events(itertools.chain.from_iterable(sampled))))


def _sampled(path: Path, size: int, budget: int) -> Iterator[bytes]:
    """Lines of a segment in their order: its beginning, its end, and pieces between them of about `budget` bytes."""
    end = max(PIECE_BYTES, min(END_BYTES, budget // 4))  # a small segment beside a large one is read whole
    pieces = max(1, (budget - 2 * end) // PIECE_BYTES)
    stride = max(PIECE_BYTES, (size - 2 * end) // pieces)
    between = ((at, PIECE_BYTES) for at in range(end, max(end, size - end - PIECE_BYTES), stride))
    descriptor, seen, read_to = os.open(path, os.O_RDONLY), 0, 0
    try:
        for at, length in ((0, end), *between, (max(0, size - end), end)):
            # A piece ends within a line, and begins within one, unless it touches the last one and goes on there.
            begun = read_to if at <= seen else at
            if at + length <= begun:
                continue
            data = os.pread(descriptor, at + length - begun, begun)
            seen = begun + len(data)
            first = 0 if begun == read_to else data.find(b"\n") + 1
            last = data.rfind(b"\n") + 1
            yield from (line for line in data[first:last].split(b"\n") if line)
            read_to = begun + last
    finally:
        os.close(descriptor)
