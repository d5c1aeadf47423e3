"""Signals: a process that runs an instance also ends what it has started if it gets SIGTERM."""

import signal
from types import FrameType


def on_sigterm() -> None:
    """Let SIGTERM end this process by a KeyboardInterrupt, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
