"""Journal: an append-only file of JSON events that survives a crash in the middle of a line.

Each line is ``<json>\\t<crc32>\\n``: readable with ``cut -f1``, and the checksum shows a torn or flipped line.
A reader skips such lines and counts them. A writer that finds a torn tail first ends it with a newline, so that a
crash costs at most the one event that was being written.
"""

import errno
import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.trainer.base import parsing

JournalEvent = dict[str, Any]


@dataclass(frozen=True)
class JournalReading:
    """The result of a reading: the events in order, the number of damaged lines, and the next reading's offset."""

    events: list[JournalEvent]
    damaged: int
    offset: int


def frame(event: JournalEvent) -> bytes:
    """One line of a journal. Raises ValueError for NaN and infinities, which JSON does not have."""
    text = json.dumps(event, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    return text + b"\t%08x\n" % zlib.crc32(text)


def parse(line: bytes) -> JournalEvent | None:
    """The event of one line without its newline, or None when the line is damaged."""
    line_events = events([line])
    return line_events[0] if line_events else None


def events(lines: Iterable[bytes]) -> list[JournalEvent]:
    """The events of lines without their newlines; a damaged line has none.

    One call for many lines: their events share the texts of their fields' names, which are most of an event's memory.
    """
    return _events([text for line in lines if (text := _verified(line)) is not None])


def _events(texts: list[bytes]) -> list[JournalEvent]:
    """The events in lines with the right checksum, without values of other programs that are no events."""
    try:
        # One call for all of them takes half the time of one for each.
        values: list[Any] = parsing.value(b"[%b]" % b",".join(texts))
    except ValueError:
        return [event for text in texts for event in _events([text])] if len(texts) > 1 else []
    return [event for event in values if isinstance(event, dict)]


def _verified(line: bytes) -> bytes | None:
    """The JSON of one line without its newline, or None when the line is damaged."""
    text, tab, checksum = line.rpartition(b"\t")
    return text if tab and checksum == b"%08x" % zlib.crc32(text) else None


class Journal:
    """The writer of a journal; one process writes a journal at a time."""

    def __init__(self, path: Path, durable: bool = True) -> None:
        """Open `path` for appending. `durable` pays one fsync for each append."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._durable = durable
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._torn = _has_torn_tail(path)

    def append(self, *events: JournalEvent) -> None:
        """Append events in one write. Raises OSError, for example for a full disk; no later event is damaged then."""
        self.append_lines(b"".join(frame(event) for event in events))

    def append_lines(self, lines: bytes) -> None:
        """Append the result of `frame`, as `append` does."""
        data = b"\n" * self._torn + lines
        self._torn = True
        if self._file.write(data) != len(data):
            raise OSError(errno.ENOSPC, f"{self._file.name}: an event was written in part: the disk is full")
        self._torn = False
        if self._durable:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path, offset: int = 0, at_most: int = -1) -> JournalReading:
    """The events of the whole lines from `offset` bytes on; an absent file is an empty journal.

    A last line without a newline is left for the next reading: it may still be written. With `at_most`, about that many
    bytes are read, but at least one line.
    """
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(at_most)
            if len(data) == at_most:
                data += file.readline()
    except FileNotFoundError:
        return JournalReading([], 0, offset)
    full_lines = data[: data.rfind(b"\n") + 1]
    lines = [line for line in full_lines.split(b"\n") if line]
    parsed_events = events(lines)
    return JournalReading(parsed_events, len(lines) - len(parsed_events), offset + len(full_lines))


def _has_torn_tail(path: Path) -> bool:
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
