"""Heart: a supervisor's sign of life while it has no time to give one, from a process beside it.

Between two generations a supervisor writes to the durable tier, waits for ranks to be gone, and asks them where they
are. A tier that stalls must not make its node look lost. The supervisor cannot have a second thread, as it forks. It
shows its life itself too while it watches, so that a node is not lost with this process.
"""

import contextlib
import functools
import os
import time

from slipway.trainer.diagnosis import stacks
from slipway.trainer.node.standstill import STOPPED
from slipway.trainer.supervisor import beside
from slipway.trainer.supervisor.job_store import CONNECT_SECONDS, JobStore, StoreGone
from slipway.trainer.supervisor.pulse import BEAT_SECONDS, Pulse


def start(host: str, port: int, node: str) -> int:
    """Start it; the pid of its process, which dies with this one. Call it before any thread is started."""
    return beside.start(__name__, functools.partial(_live, os.getpid(), host, port, node))


def _live(supervisor: int, host: str, port: int, node: str) -> None:
    """The life of the process. A store that is gone ends it: the supervisor finds out by itself."""
    with contextlib.suppress(StoreGone):
        pulse = Pulse(JobStore.connected(host, port, CONNECT_SECONDS), node)
        while True:
            if stacks.state(supervisor) != STOPPED:
                pulse.beat()
            time.sleep(BEAT_SECONDS)
