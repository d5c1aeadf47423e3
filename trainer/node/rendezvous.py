"""The rendezvous store of a job on a cluster, in a pod of its own: hosted by no node of the job, it survives each.

``python -m slipway.trainer.node.rendezvous`` serves on the port that SLIPWAY_STORE_PORT names. It ends by itself when
all who had come have left: at once when they said that the job is over, else after a while, as nodes that were killed
together may be started anew. It ends at once when it is asked to stop while nobody is there: a job that is cancelled
may still need it for its last checkpoint. The end of the store is the end of the job: agents that lose it give up.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

from slipway.trainer.base import console, not_by_hand
from slipway.trainer.node.generations import OVER

PORT_VARIABLE = "SLIPWAY_STORE_PORT"
"""In the environment of the store: its port."""
LEFT_VARIABLE = "SLIPWAY_STORE_LEFT_SECONDS"
"""In the environment of the store: how long it waits without anybody, if not `LEFT_SECONDS`."""
LEFT_SECONDS = 10.0
"""After so long without anybody the job is over."""
LOOK_SECONDS = 1.0
TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
ESTABLISHED = "01"


class Visits:
    """Whether somebody came, who is there, and for how long nobody has been."""

    def __init__(self, left_seconds: float = LEFT_SECONDS) -> None:
        self._came, self._left_at, self.asked_to_stop = False, 0.0, False
        self._left_seconds = left_seconds

    def is_over(self, clients: int, wrote: bool, now: float, over: bool = False) -> bool:
        """Whether the store is needed no more; `now` is of a monotonic clock, in seconds.

        `wrote` says whether somebody has ever written: who comes and leaves between two looks has, all the same.
        `over`: whether a node has written that the job is over.
        """
        if clients:
            self._came, self._left_at = True, now
            return False
        if wrote and not self._came:
            self._came, self._left_at = True, now
        return self.asked_to_stop or over or (self._came and now - self._left_at >= self._left_seconds)


def connections(port: int, tables: tuple[str, ...]) -> int:
    """How many connections to the port are established, by the kernel's tables of sockets (proc(5), /proc/net/tcp)."""
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return sum(row[3] == ESTABLISHED and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def main() -> int:
    """Serve until nobody needs the store; 1 when the port cannot be had."""
    visits = Visits(float(os.environ.get(LEFT_VARIABLE, LEFT_SECONDS)))
    port = int(os.environ[PORT_VARIABLE])

    def stop(*_: object) -> None:
        visits.asked_to_stop = True

    signal.signal(signal.SIGTERM, stop)
    try:
        listener = _listener(port)
    except OSError as error:
        console.warn(f"trainer: the rendezvous store cannot have port {port}: {error}")
        return 1
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("localhost", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    own, keys = 1, store.num_keys()  # the store is a client of itself
    while True:
        clients, wrote = connections(store.port, _tables()) - own, store.num_keys() > keys
        if visits.is_over(clients, wrote, time.monotonic(), wrote and store.check([OVER])):
            return 0
        time.sleep(LOOK_SECONDS)


def _listener(port: int) -> socket.socket:
    """A socket that listens on all addresses, IPv6 too where the machine has it."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _tables() -> tuple[str, ...]:
    return tuple(table.read_text() for table in TABLES if table.exists())


if __name__ == "__main__":
    not_by_hand.explain("slipway.trainer.node.rendezvous", "lets the nodes of a job on a cluster meet")
    code = main()
    sys.stderr.flush()
    os._exit(code)
