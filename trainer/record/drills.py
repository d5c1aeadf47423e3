"""Drills: faults that an operator orders from the ranks of a running training, to test their detection.

    drills/<id>.json     an order

Only a training whose recipe allows drills (`recovery.drills`) reads orders. The rank that carries one out records this
in its own segment of the ledger first.
"""

import contextlib
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec
from slipway.trainer.record import files

FORMAT = "slipway.drill/1"
NAN = "nan"
NAN_FOR_EVER = "nan-for-ever"
SPIKE = "spike"
FLIP = "flip"
HANG = "hang"
KILL = "kill"
CRASH = "crash"
STOP = "stop"
SLOW = "slow"
SLOW_SECONDS = 100.0
SLOW_STEPS = 12
"""A slow rank is slow for this time and at least this many steps: longer than the time until it is reported."""
KINDS = {
    KILL: "the rank gets SIGKILL",
    CRASH: "the rank gets SIGSEGV",
    STOP: "the rank gets SIGSTOP",
    SLOW: f"the passes of the rank take three times as long for {SLOW_SECONDS:.0f} s, or {SLOW_STEPS} steps",
    NAN: "the gradients of one micro-batch are not finite",
    NAN_FOR_EVER: "the gradients are not finite, from now on and in every later start",
    SPIKE: "the outputs for one micro-batch are a thousand times too large",
    FLIP: "one bit of the weights flips",
    HANG: "the rank waits for a message that nobody sends",
}
"""The kinds of faults, with their effects."""
SEVERAL = (FLIP, HANG, SLOW)
"""The kinds that need several ranks."""


@dataclass(frozen=True)
class DrillOrder:
    """One order."""

    kind: str
    """Of `KINDS`."""
    rank: int
    token: str
    """The generation that is to obey; empty for this one and all later ones."""
    by: str
    at: float
    """Seconds since the epoch."""


def order(store: Path, kind: str, rank: int, token: str, by: str) -> None:
    """Ask a rank for a drill. Raises OSError, and ValueError for an unknown kind."""
    if kind not in KINDS:
        raise ValueError(f"drill: found {kind!r}, expected one of {', '.join(KINDS)}")
    codec.create_only(
        files.named(store, files.DRILLS, uuid.uuid4().hex), DrillOrder(kind, rank, token, by, time.time()), FORMAT
    )


def orders(store: Path, rank: int, token: str) -> dict[str, DrillOrder]:
    """The orders for a rank of a generation, by id, without those that cannot be read. Raises OSError."""
    due_orders = {}
    for id in files.names(store, files.DRILLS):
        with contextlib.suppress(codec.UndecodableRecord, FileNotFoundError):
            drill = codec.read(files.named(store, files.DRILLS, id), DrillOrder, FORMAT)
            if drill.rank == rank and drill.token in ("", token):
                due_orders[id] = drill
    return due_orders
