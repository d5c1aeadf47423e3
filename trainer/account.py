"""The account that a rank gives of itself: heartbeats, and of rank 0 the ledger and how it ended.

A full disk costs the words that find no room, not the run: that is said on standard error instead.
"""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer import fence
from trainer.heartbeat import Heartbeat
from trainer.ledger import Ledger


class Account:
    """The account of one rank under one token."""

    def __init__(self, store: Path, token: fence.Token, rank: int) -> None:
        self._store, self._token = store, token
        self._heartbeat = Heartbeat(store, token, rank)
        self._ledger = Ledger(store, token, f"rank-{rank}") if rank == 0 else None

    def beat(self, phase: str, step: int) -> None:
        """Say that this rank is in `phase` at `step`."""
        with told_if_unwritable("heartbeat"):
            self._heartbeat.beat(phase, step)

    def record(self, event: str, **fields: Any) -> None:
        """An event for the ledger; only rank 0 writes."""
        if self._ledger:
            with told_if_unwritable("ledger"):
                self._ledger.write(event, **fields)

    def record_end(self, outcome: str, reason: str, step: int) -> None:
        """The durable mark of an end that starting again would not change. Raises OSError."""
        self.record("ended", outcome=outcome, step=step, reason=reason)
        if self._ledger:
            done = fence.Exit(self._token.incarnation, outcome, reason, step, "trainer", time.time())
            fence.record_exit(self._store, done)


@contextlib.contextmanager
def told_if_unwritable(what: str) -> Iterator[None]:
    """Go on where a disk cannot be written, and say so."""
    try:
        yield
    except OSError as error:
        print(f"trainer: the {what} cannot be written: {error}", file=sys.stderr, flush=True)
