"""Drills: faults that an operator asks the ranks of a running training for, to see that they are found.

    drills/<id>.json     an order

A drill is heard only by a training whose recipe allows it (`recovery.drills`). The rank that obeys says so in a segment
of the ledger of its own, before it does any harm.
"""

import contextlib
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec
from slipway.trainer.record import files

FORMAT = "slipway.drill/1"
NAN, NAN_FOR_EVER, SPIKE, FLIP, HANG = "nan", "nan-for-ever", "spike", "flip", "hang"
KILL, CRASH, STOP, SLOW = "kill", "crash", "stop", "slow"
SLOW_SECONDS, SLOW_STEPS = 100.0, 12
"""How long a slow rank is slow, and for how many steps at the least: longer than it takes until it is reported."""
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
"""What can be asked for, and what happens then."""
SEVERAL = (FLIP, HANG, SLOW)
"""What needs several ranks."""


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
    """What a rank of a generation is asked for, by id; an order that cannot be read is none. Raises OSError."""
    due_orders = {}
    for id in files.names(store, files.DRILLS):
        with contextlib.suppress(codec.UndecodableRecord, FileNotFoundError):
            drill = codec.read(files.named(store, files.DRILLS, id), DrillOrder, FORMAT)
            if drill.rank == rank and drill.token in ("", token):
                due_orders[id] = drill
    return due_orders
