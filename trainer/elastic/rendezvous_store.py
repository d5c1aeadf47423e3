"""The rendezvous store of a job, in a process of its own: no node of the job hosts it, so it survives each of them.

``python -m slipway.trainer.elastic.rendezvous_store`` serves, in a pod of a cluster, on the port of SLIPWAY_STORE_PORT.
It ends by itself when all its clients have left: at once if they have announced that the job is over, else after a
while, because nodes that were killed together may be started anew. When it is asked to stop, it ends as soon as it has
no clients: a cancelled job may still need it for its last checkpoint. The job ends with its store: agents that lose it
give up.

A job of one node has its store in a process beside its ranks (`start_local`): no other node needs it, so no launcher
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
"""In the environment of the store: how long it waits without clients, if not `LEFT_SECONDS`."""
LEFT_SECONDS = 10.0
"""After this time without clients the job is over."""
LOOK_SECONDS = 1.0
LOOPBACK = "127.0.0.1"
TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
ESTABLISHED = "01"


class Visits:
    """The clients' visits: whether one ever came, and since when there is none."""

    def __init__(self, left_seconds: float = LEFT_SECONDS) -> None:
        self._came = False
        self._left_at = 0.0
        self.asked_to_stop = False
        self._left_seconds = left_seconds

    def is_over(self, clients: int, wrote: bool, now: float, over: bool = False) -> bool:
        """Whether the store is no longer needed; `now`: seconds of a monotonic clock.

        `wrote`: whether a client has ever written; this shows a client that came and left between two calls. `over`:
        whether a node has written that the job is over.
        """
        if clients:
            self._came = True
            self._left_at = now
            return False
        if wrote and not self._came:
            self._came = True
            self._left_at = now
        return self.asked_to_stop or over or (self._came and now - self._left_at >= self._left_seconds)


def connections(port: int, tables: tuple[str, ...]) -> int:
    """The number of established connections to the port, from the kernel's socket tables (proc(5), /proc/net/tcp)."""
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return sum(row[3] == ESTABLISHED and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def main() -> int:
    """Serve until no client needs the store; returns 1 if the port is not available."""
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
    own_clients = 1  # the store is a client of itself
    own_keys = store.num_keys()
    while True:
        clients = connections(store.port, _tables()) - own_clients
        wrote = store.num_keys() > own_keys
        if visits.is_over(clients, wrote, time.monotonic(), wrote and store.check([OVER])):
            return 0
        time.sleep(LOOK_SECONDS)


def start_local() -> tuple[int, int]:
    """Start the store on a free port of the loopback interface; returns the pid of its process, and the port.

    The process dies with this one. Call it after the import of torch, and before any thread is started. Raises OSError.
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
    """The main function of the store's process; does not return."""
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
