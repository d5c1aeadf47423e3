"""The recorder of a rank: its position, for its heartbeats; on rank 0 also the ledger and the exit.

Recording costs a step no time, because a thread writes (`slipway.trainer.record.record_writer`). On a full disk,
records are dropped with a warning on standard error, and the run goes on.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slipway.trainer.base import console, processes
from slipway.trainer.record import causes, fence, rank_exit, spans
from slipway.trainer.record.heartbeat import Heartbeat, Position
from slipway.trainer.record.ledger import Ledger
from slipway.trainer.record.phases import ENDING, STARTING, Phase
from slipway.trainer.record.record_writer import RecordWriter
from slipway.trainer.record.spans import SpanLog

BY_SIGNAL = "asked to stop by SIGTERM"
BEGUN_VARIABLE = "SLIPWAY_BEGUN"
"""When the supervisor of a job's first ranks began, in seconds since the epoch: its imports are part of the start."""


class RankRecorder:
    """The records of one rank under one token. `close` writes the last records, which may still be in memory."""

    def __init__(self, store: Path, token: fence.Token, rank: int) -> None:
        self._store = store
        self._token = token
        self._rank = rank
        self._position = Position()
        heartbeat = Heartbeat(store, token, rank)
        self._record_writer = RecordWriter(self._position, heartbeat, self._opened)
        self.steps_apart = spans.of_rank()
        """The distance between two traced steps; 0 if no step is traced."""
        self._phase = STARTING.name
        self._since = processes.begun_at()
        began = float(os.environ.get(BEGUN_VARIABLE, self._since))
        self.record("phase", phase=STARTING.name, step=0, since=began)
        self.record_span("rank", node=os.environ.get("SLIPWAY_NODE", "local"), since=self._since)

    def __enter__(self) -> "RankRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait until all is written, for half a minute at most."""
        self._end_phase("", self.step)
        self.record_span("end")
        self._record_writer.close()

    def enter(self, phase: Phase, step: int, count: Callable[[], int] | None = None) -> None:
        """This rank is in `phase` at `step`; `count` as for `Position.enter`."""
        new = phase.name != self._position.phase
        self._position.enter(phase.name, step, count)
        if new:
            self._record_writer.beat()
            self.record("phase", phase=phase.name, step=step)
            self._end_phase(phase.name, step)

    @property
    def step(self) -> int:
        """This rank's step in its heartbeats; any thread may read it."""
        return self._position.progress().step

    def follow(self, section: Callable[[], str]) -> None:
        """Include the section of a step, which `section` returns in any thread, in the heartbeats."""
        self._position.section = section

    def keep_pace(self, longest: float, own: float) -> None:
        """Include the duration of this rank's last steps in the heartbeats; see `Beat`."""
        self._position.pace = (longest, own)

    def keep_validation(self, seconds: float) -> None:
        """Include the duration of this rank's longest validation in the heartbeats."""
        self._position.validated = max(self._position.validated, seconds)

    def record(self, event: str, **fields: Any) -> None:
        """Write an event to the ledger; only rank 0 does."""
        if self._rank == 0:
            self._record_writer.record("rank-0", event, fields)

    def record_own(self, writer: str, event: str, **fields: Any) -> None:
        """Write an event of this rank to its own segment, which the first such event creates."""
        self._record_writer.record(f"{writer}-{self._rank}", event, {"rank": self._rank, **fields})

    def record_span(self, event: str, **fields: Any) -> None:
        """Write a span of this rank, if traces are sent."""
        if self.steps_apart:
            self._record_writer.record(f"{spans.WRITER}-{self._rank}", event, {"rank": self._rank, **fields})

    def _end_phase(self, following: str, step: int) -> None:
        self.record_span("phase", name=self._phase, step=step, begun=self._since)
        self._phase = following
        self._since = time.time()

    def _opened(self, writer: str) -> Ledger:
        """The segment of a writer."""
        of_spans = writer.startswith(f"{spans.WRITER}-")
        return (SpanLog if of_spans else Ledger)(self._store, self._token, writer)

    def flush(self) -> None:
        """Wait until all records are written."""
        self._record_writer.flush()

    def record_stop(self, step: int, reason: str) -> None:
        """Record that this incarnation stopped as it was asked to; `reason` says how this rank was, if it was."""
        self.enter(ENDING, step)
        self.record("ended", outcome="stopped", kind=causes.STOP_REQUESTED, step=step, reason="asked to stop")
        if reason:
            rank_exit.note(self._store, self._token, self._rank, causes.STOP_REQUESTED, reason, step)

    def record_end(self, outcome: str, kind: str, reason: str, step: int) -> None:
        """Write the exit of an incarnation that would end in the same way if it was started again.

        Who reads it finds the ledger of all steps. Raises OSError, and fence.Superseded when the training was given up
        before.
        """
        self.enter(ENDING, step)
        if self._rank == 0:
            self._record_writer.flush()
            done = fence.Exit(self._token.incarnation, outcome, reason, step, "trainer", time.time(), kind=kind)
            fence.end(self._store, done, self._token)
        self.record("ended", outcome=outcome, kind=kind, step=step, reason=reason)


@contextlib.contextmanager
def warn_if_unwritable(what: str) -> Iterator[None]:
    """Go on when a disk cannot be written, with a warning on standard error."""
    try:
        yield
    except OSError as error:
        console.warn(f"trainer: the {what} cannot be written: {error}")
