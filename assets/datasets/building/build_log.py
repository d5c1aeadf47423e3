"""The log of a build, a function that takes one line of text, and the phases that report their progress to it.

Every long phase reports its progress and the remaining time here, so that the log of a step, the page of its asset and
the command line show the same text: "encoding: 120.0 MB of 400.0 MB (30%), 2 min left".
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from slipway.trainer.base import quantities
from slipway.trainer.base.quantities import duration

if TYPE_CHECKING:
    import duckdb

BuildLog = Callable[[str], None]
"""Takes one line of text."""

BYTES = "bytes"
"""The unit of phases that count bytes."""
SECONDS = 5.0
"""Seconds between two lines of a phase; the last line is always logged."""
LOOK_SECONDS = 1.0
"""Seconds between two checks of a query's progress."""


def quiet(_: str) -> None:
    """A log that ignores its lines."""


class BuildPhase:
    """One phase: `doing` is its name, `total` the amount of work in `unit`, or None if unknown. Without a unit only the
    share is shown; `BYTES` are shown in a suitable unit."""

    def __init__(self, log: BuildLog, doing: str, total: float | None, unit: str) -> None:
        self._log = log
        self._doing = doing
        self._total = total
        self._unit = unit
        self._done = 0.0
        self._began = time.monotonic()
        self._reported_at = time.monotonic()

    def add(self, amount: float) -> None:
        """Add to the amount of work done."""
        self.reach(self._done + amount)

    def reach(self, done: float) -> None:
        """Set the amount of work done."""
        self._done = done
        now = time.monotonic()
        if now - self._reported_at >= SECONDS or (self._total is not None and done >= self._total):
            self._reported_at = now
            self._log(self.line)

    @property
    def line(self) -> str:
        """The progress in words; the remaining time assumes the mean rate so far."""
        if self._total is None:
            return f"{self._doing}: {self._amount(self._done)}"
        share = min(self._done / self._total, 1.0) if self._total else 1.0
        amount = f"{self._of_total} ({share:.0%})"
        progress = f"{self._doing}: {amount if self._unit else f'{share:.0%}'}"
        if not 0 < share < 1:
            return progress
        return f"{progress}, {duration((time.monotonic() - self._began) * (1 / share - 1))} left"

    @property
    def _of_total(self) -> str:
        assert self._total is not None
        if self._unit == BYTES:
            return f"{quantities.bytes_in_words(self._done)} of {quantities.bytes_in_words(self._total)}"
        return f"{self._done:,.0f} of {self._total:,.0f} {self._unit}"

    def _amount(self, amount: float) -> str:
        if self._unit == BYTES:
            return quantities.bytes_in_words(amount)
        return f"{amount:,.0f} {self._unit}"


@contextlib.contextmanager
def logged_query(connection: "duckdb.DuckDBPyConnection", log: BuildLog, doing: str) -> Iterator[None]:
    """A context in which another thread reports the progress of the connection's queries."""
    ended = threading.Event()

    def look() -> None:
        phase = BuildPhase(log, doing, 100, "")
        percent = 0.0
        while not ended.wait(LOOK_SECONDS):
            before = percent
            percent = min(max(connection.query_progress(), 0.0), 99.0)
            if percent < before:  # the next query has started
                phase = BuildPhase(log, doing, 100, "")
            phase.reach(percent)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()
