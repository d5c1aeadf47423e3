"""Signals: a process that runs an instance ends all that it has started, whoever ends it and how."""

import signal
from types import FrameType


def on_sigterm() -> None:
    """From now on SIGTERM ends this process as Ctrl-C does, by a KeyboardInterrupt."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
