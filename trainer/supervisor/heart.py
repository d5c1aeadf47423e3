"""Heart: a supervisor's sign of life while it has no time to give one, from a process beside it.

Between two generations a supervisor writes to the durable tier, waits for ranks to be gone, and asks them where they
are. A tier that stalls must not make its node look lost. The supervisor cannot have a second thread, as it forks.
"""

import os
import signal
import time

from trainer.base import processes
from trainer.diagnosis import stacks
from trainer.node.standstill import STOPPED
from trainer.supervisor.job_store import JobStore, StoreGone
from trainer.supervisor.pulse import BEAT_SECONDS, Pulse

CONNECT_SECONDS = 10.0


def start(host: str, port: int, node: str) -> int:
    """Start it; the pid of its process, which dies with this one. Call it before any thread is started."""
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        _live(parent, host, port, node)
    return pid


def _live(parent: int, host: str, port: int, node: str) -> None:
    """The life of the process; does not return. A store that is gone ends it: the supervisor finds out by itself."""
    try:
        processes.die_with_parent(parent)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a node that was asked to stop lives until its ranks have saved
        pulse = Pulse(JobStore.connected(host, port, CONNECT_SECONDS), node)
        while True:
            if stacks.state(parent) != STOPPED:
                pulse.beat()
            time.sleep(BEAT_SECONDS)
    except StoreGone:
        pass
    finally:
        os._exit(1)
