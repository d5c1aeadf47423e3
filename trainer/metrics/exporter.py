"""The exporter of a job: the figures of its node's ranks, and of the training, for Prometheus to scrape.

SLIPWAY_METRICS_PORT in the environment starts it, in a process beside the ranks that dies with their supervisor. So a
scrape costs the steps nothing. It reads the new entries of the records that the ranks write anyway. Only the node of
rank 0 exports the figures of the whole training, so that no query counts them twice.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slipway.trainer.base import console, exporting, forked, journal
from slipway.trainer.base.exposition import Exposition
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.metrics.job_metrics import JobFigures, expose_ranks
from slipway.trainer.record import fence, heartbeat, ledger
from slipway.trainer.record.heartbeat import Beat, RankPlace

VARIABLE = "SLIPWAY_METRICS_PORT"


class JobExporter:
    """Reads the records of one incarnation of a training, at each scrape from where the last one ended."""

    def __init__(
        self, store: Path, incarnation: int, node: str | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`node` None: all nodes, for one exporter of a whole job. `clock` measures times without progress."""
        self._store = store
        self._incarnation = incarnation
        self._node = node
        self._clock = clock
        self._figures = JobFigures(store.name)
        self._offsets: dict[str, int] = {}
        self._last_progress: dict[int, tuple[RankPlace, float]] = {}

    def text(self) -> str:
        """The answer to a scrape. Raises OSError."""
        exposition = Exposition()
        self.expose(exposition)
        return exposition.text()

    def expose(self, into: Exposition) -> None:
        """Add the present samples. Raises OSError."""
        beats = self._beats()
        self._figures.add(self._new())
        if self._node is None or any(beat.rank == 0 for beat in beats):
            self._figures.expose(into)
        expose_ranks(into, self._store.name, beats, self._still(beats))

    def _beats(self) -> list[Beat]:
        """The heartbeats of this node's ranks, in the newest generation."""
        claim = fence.newest_claim(self._store)
        beats = heartbeat.read(self._store, claim.token) if claim else []
        return [beat for beat in beats if self._node is None or beat.node == self._node]

    def _new(self) -> list[JournalEvent]:
        """The events of this incarnation since the last scrape."""
        events: list[JournalEvent] = []
        for path in ledger.segments(self._store):
            if path.name.startswith(f"{self._incarnation:06d}."):
                reading = journal.read(path, self._offsets.get(path.name, 0))
                self._offsets[path.name] = reading.offset
                events += reading.events
        return sorted(events, key=lambda event: float(event["t"]))

    def _still(self, beats: Sequence[Beat]) -> dict[int, float]:
        now = self._clock()
        for beat in beats:
            if self._last_progress.get(beat.rank, (None, 0.0))[0] != beat.progress:
                self._last_progress[beat.rank] = beat.progress, now
        return {beat.rank: now - self._last_progress[beat.rank][1] for beat in beats}


def start(store: Path, incarnation: int, node: str) -> tuple[int, ...]:
    """Start the exporter if the environment has its port; returns the pid of its process, or nothing.

    Call it before any thread is started. If the port is taken, this node exports no metrics, with a warning.
    """
    port_text = os.environ.get(VARIABLE, "")
    if not port_text:
        return ()
    try:
        served = exporting.server("", _port(port_text), JobExporter(store, incarnation, node).text)
    except (OSError, ValueError) as error:
        console.warn(f"trainer: {VARIABLE}={port_text}: {error}; this node exports no metrics")
        return ()
    pid = forked.start_helper(__name__, served.serve_forever)  # it serves to the end, so that the last steps count
    served.server_close()
    return (pid,)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError("expected a port from 1 to 65535")
    return int(text)
