"""The record writer: a thread of a rank that writes the rank's heartbeats and ledger, so that no step waits for a file
system.

The training thread puts events into a spool in memory, which never blocks it. The record writer writes them in order,
and tries again if the store cannot be written for a while. The spool is bounded: events without room are counted, with
a warning in the log, and the ledger gets their number (`not_recorded`) as soon as it can be written again.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from slipway.trainer.base import console, journal
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.record.heartbeat import INTERVAL_SECONDS, Heartbeat, Position
from slipway.trainer.record.ledger import Ledger

SPOOL_BYTES = 16 << 20
"""Some 20,000 steps' events."""
FIELD_BYTES = 36
"""The approximate bytes of a field with a number."""
LAST_SECONDS = 30.0
"""The longest time that a rank at its end waits for the spool."""

OpenLedger = Callable[[str], Ledger]
"""Opens the segment of a writer. Raises OSError."""


class RecordWriter:
    """Writes one rank's records; all methods but `close` and `flush` return at once."""

    def __init__(
        self, position: Position, heartbeat: Heartbeat, open_ledger: OpenLedger, room: int = SPOOL_BYTES
    ) -> None:
        self._position = position
        self._heartbeat = heartbeat
        self._open = open_ledger
        self._room = room
        self._spool: deque[tuple[str, JournalEvent | bytes, int]] = deque()
        """The segment's writer, the event or its line, and the bytes that it counts as."""
        self._bytes = self._lost = 0
        self._ledgers: dict[str, Ledger] = {}
        self._changed = threading.Condition()
        self._due = self._closing = False
        self._warned: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="record-writer", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """The rank has entered a phase: have the heartbeat written now, and not in a second."""
        with self._changed:
            self._due = True
            self._changed.notify_all()

    def record(self, writer: str, event: str, fields: dict[str, Any]) -> None:
        """Have an event, which happened now, written to the segment of `writer`. Raises ValueError for NaN."""
        entry: JournalEvent = {"event": event, "t": time.time(), **fields}
        if _are_numbers(fields.values()):
            # Its line takes most of the time of all this: the thread makes it, as nothing can refuse or change it now.
            self._put(writer, entry, FIELD_BYTES * len(entry))
        else:
            line = journal.frame(entry)
            self._put(writer, line, len(line))

    def flush(self, seconds: float = LAST_SECONDS) -> bool:
        """Wait until all that was recorded is written; False, which the log explains, when that takes longer."""
        with self._changed:
            done = self._changed.wait_for(lambda: not self._spool, seconds)
            remaining = len(self._spool)
        if not done:
            _say(f"{remaining} events of the ledger could not be written in {seconds:.0f} s")
        return done

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Write what is left, for so many seconds at most, and end the thread."""
        self.flush(seconds)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(INTERVAL_SECONDS)

    def _put(self, writer: str, event: JournalEvent | bytes, size: int) -> None:
        with self._changed:
            if self._bytes + size > self._room:
                self._lost += 1
                first = self._lost == 1
            else:
                first = False
                self._spool.append((writer, event, size))
                self._bytes += size
                self._changed.notify_all()
        if first:
            _say("the ledger cannot be written, and the spool is full: events are lost, and counted")

    def _run(self) -> None:
        while not self._closing:
            written = self._write_heartbeat() & self._write_spool()
            with self._changed:
                # After an error of the store, wait before the next attempt.
                ready = (lambda: self._closing) if not written else (lambda: self._closing or self._due or self._spool)
                self._changed.wait_for(ready, INTERVAL_SECONDS)
                self._due = False
        self._write_heartbeat()

    def _write_heartbeat(self) -> bool:
        """Whether the store took it."""
        progress = self._position.progress()
        section = self._position.section()
        learned = self._position.pace, self._position.validated
        return not progress.phase or self._attempt(
            "heartbeat", lambda: self._heartbeat.beat(progress.phase, progress.step, progress.done, section, *learned)
        )

    def _write_spool(self) -> bool:
        """Write the events, the first one first, until the store takes no more; whether it took all."""
        while self._spool:
            writer, event, size = self._spool[0]
            line = event if isinstance(event, bytes) else journal.frame(event)
            if not self._attempt("ledger", lambda: self._ledger(writer).append(line)):  # noqa: B023 - called at once
                return False
            self._note_written(writer, size)
        return True

    def _note_written(self, writer: str, size: int) -> None:
        """Take the first event out of the spool; the number of dropped events takes its place."""
        with self._changed:
            self._spool.popleft()
            self._bytes -= size
            if self._lost:
                line = journal.frame({"event": "not_recorded", "t": time.time(), "events": self._lost})
                self._spool.appendleft((writer, line, len(line)))
                self._bytes = self._bytes + len(line)
                self._lost = 0
            self._changed.notify_all()

    def _ledger(self, writer: str) -> Ledger:
        if writer not in self._ledgers:
            self._ledgers[writer] = self._open(writer)
        return self._ledgers[writer]

    def _attempt(self, what: str, write: Callable[[], None]) -> bool:
        """Write to the store; returns whether it succeeded. The log has each reason for a failure once."""
        try:
            write()
        except OSError as error:
            if self._warned.get(what) != str(error):
                self._warned[what] = str(error)
                _say(f"the {what} cannot be written: {error}")
            return False
        self._warned.pop(what, None)
        return True


def _are_numbers(values: Iterable[Any]) -> bool:
    """Whether all are finite numbers, of Python's own types."""
    for value in values:
        kind = type(value)
        if (kind is not float or not math.isfinite(value)) and kind is not int and kind is not bool:
            return False
    return True


def _say(text: str) -> None:
    console.warn(f"trainer: {text}")
