"""Phase: how far a long part of a build is and how long it will still take, as one line in the log of the build.

Everything that takes long tells it here, so that the log of a step, the page of its asset and the command line say it
in the same words: "encoding: 120.0 MB of 400.0 MB (30%), 2 min left".
"""

import contextlib
import threading
import time
from collections.abc import Iterator

import duckdb

from slipway.assets.datasets.building.build_log import BuildLog
from slipway.trainer.base import byte_size
from slipway.trainer.base.durations import duration

BYTES = "bytes"
"""The unit of phases that count bytes."""
SECONDS = 5.0
"""Between two lines of a phase; its last line is always logged."""
LOOK_SECONDS = 1.0
"""Between two looks at how far a query is."""


class BuildPhase:
    """One phase: `doing` is its name, `total` how much is to be done, in `unit`; None where that is not known. Without
    a unit only the share is shown; `BYTES` are shown in the unit that fits them."""

    def __init__(self, report: BuildLog, doing: str, total: float | None, unit: str) -> None:
        self._report, self._doing, self._total, self._unit = report, doing, total, unit
        self._done, self._began, self._reported_at = 0.0, time.monotonic(), time.monotonic()

    def add(self, amount: float) -> None:
        """So much more is done."""
        self.reach(self._done + amount)

    def reach(self, done: float) -> None:
        """So much is done in all."""
        self._done = done
        now = time.monotonic()
        if now - self._reported_at >= SECONDS or (self._total is not None and done >= self._total):
            self._reported_at = now
            self._report(self.line)

    @property
    def line(self) -> str:
        """How far it is; the time left is what the rest takes at the mean rate until now."""
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
            return f"{byte_size.words(self._done)} of {byte_size.words(self._total)}"
        return f"{self._done:,.0f} of {self._total:,.0f} {self._unit}"

    def _amount(self, amount: float) -> str:
        return byte_size.words(amount) if self._unit == BYTES else f"{amount:,.0f} {self._unit}"


@contextlib.contextmanager
def asking(connection: duckdb.DuckDBPyConnection, report: BuildLog, doing: str) -> Iterator[None]:
    """Within it, tell how far the query is that the connection runs, one after the other; another thread looks."""
    ended = threading.Event()

    def look() -> None:
        phase, percent = BuildPhase(report, doing, 100, ""), 0.0
        while not ended.wait(LOOK_SECONDS):
            before, percent = percent, min(max(connection.query_progress(), 0.0), 99.0)
            if percent < before:  # the next query
                phase = BuildPhase(report, doing, 100, "")
            phase.reach(percent)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()
