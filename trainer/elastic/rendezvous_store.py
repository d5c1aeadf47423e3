"""The rendezvous store of a job, in a process of its own: hosted by no node of the job, it survives each.

``python -m slipway.trainer.elastic.rendezvous_store`` serves, in a pod of a cluster, on the port that
SLIPWAY_STORE_PORT names. It ends by itself when all who had come have left: at once when they said that the job is
over, else after a while, as nodes that were killed together may be started anew. It ends at once when it is asked to
stop while nobody is there: a job that is cancelled may still need it for its last checkpoint. The end of the store is
the end of the job: agents that lose it give up.

A job of one node has its store in a process beside its ranks (`start_local`): nobody else needs it, so no launcher
hosts it.
"""

import functools
import os
import signal
import socket
import sys
import time
from pathlib import Path

from slipway.trainer.base import console, forked
from slipway.trainer.elastic.generations import OVER

PORT_VARIABLE = "SLIPWAY_STORE_PORT"
"""In the environment of the store: its port."""
LEFT_VARIABLE = "SLIPWAY_STORE_LEFT_SECONDS"
"""In the environment of the store: how long it waits without anybody, if not `LEFT_SECONDS`."""
LEFT_SECONDS = 10.0
"""After so long without anybody the job is over."""
LOOK_SECONDS = 1.0
LOOPBACK = "127.0.0.1"
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


def start_local() -> tuple[int, int]:
    """Start the store on a free port of this machine alone; the pid of its process, which dies with this one, the port.

    Call it after torch has been imported, and before any thread is started. Raises OSError.
    """
    listener = socket.create_server((LOOPBACK, 0))
    port = int(listener.getsockname()[1])
    pid = forked.start_helper(__name__, functools.partial(_serve, listener, port))
    listener.close()
    return pid, port


def _listener(port: int) -> socket.socket:
    """A socket that listens on all addresses, IPv6 too where the machine has it."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _tables() -> tuple[str, ...]:
    return tuple(table.read_text() for table in TABLES if table.exists())


def _serve(listener: socket.socket, port: int) -> None:
    """The life of the store's process."""
    from torch._C._distributed_c10d import TCPStore

    store = TCPStore(LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    assert store.port == port
    while True:
        signal.pause()


if __name__ == "__main__":
    console.explain("slipway.trainer.elastic.rendezvous_store", "lets the nodes of a job on a cluster meet")
    code = main()
    sys.stderr.flush()
    os._exit(code)
