"""The exit of an incarnation: how it ended. The first record of an incarnation stands, and decides who was first.

A trainer that has done all steps, and a process that claims the next incarnation, may come at the same moment. Both
write this record before they go on: when the trainer's is there, the training has succeeded and is never superseded;
when the claimer's is there, the trainer learns that it was given up.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.record import files, mirrored_record
from slipway.trainer.record.claims import FORMAT

SUCCEEDED = "succeeded"


@dataclass(frozen=True)
class Exit:
    """How one incarnation ended."""

    incarnation: int
    outcome: str
    """succeeded, failed or stopped."""
    reason: str
    step: int
    by: str
    at: float
    nodes: tuple[str, ...] = ()
    """The nodes on which it ran, as far as they are known."""
    disrupted: bool = False
    """Whether the cause lies outside the training: a node died, or the job lost its place on the cluster."""
    kind: str = ""
    """The class of the reason, of `slipway.trainer.record.causes`; empty in a record of an earlier version."""


def create(folder: Path, value: Exit) -> bool:
    """Record the end of an incarnation, unless there is a record; returns whether it did. Raises OSError."""
    return mirrored_record.create_only(files.numbered(folder, files.EXITS, value.incarnation), value, FORMAT)


def read(folder: Path, incarnation: int) -> Exit | None:
    """How the incarnation ended, None while it has not. Raises Unreadable when its record and the copy are damaged."""
    return mirrored_record.read_if_there(files.numbered(folder, files.EXITS, incarnation), Exit, FORMAT)


def past(folder: Path, incarnation: int) -> Exit | None:
    """The end of an incarnation before the newest; None if it is not known, because only the history needs it."""
    with contextlib.suppress(files.Unreadable):
        return read(folder, incarnation)
    return None


def succeeded(folder: Path, incarnation: int) -> bool:
    """Whether the incarnation ended with success. Raises Unreadable."""
    ended = read(folder, incarnation)
    return ended is not None and ended.outcome == SUCCEEDED
