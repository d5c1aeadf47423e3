"""Beside: a process that helps a supervisor and does not outlive it, under a name of its own in lists of processes."""

import os
import signal
import sys
from collections.abc import Callable

from slipway.trainer.base import forked, processes


def start(name: str, live: Callable[[], None]) -> int:
    """Fork a process that runs `live` and then ends; its pid.

    name: the module that others see. Call it before any thread is started. SIGTERM does not end it: a node that was
    asked to stop still needs it until its ranks have saved.
    """
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    try:
        processes.die_with_parent(parent)
        forked.show_words((sys.executable, "-m", name))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        live()
    finally:
        os._exit(1)
