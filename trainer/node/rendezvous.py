"""The rendezvous store of a job on a cluster, in a pod of its own: hosted by no node of the job, it survives each.

``python -m trainer.node.rendezvous`` serves on the port that SLIPWAY_STORE_PORT names. It ends by itself when all who
had come have left, and at once when it is asked to stop while nobody is there: a job that is cancelled may still need
it for its last checkpoint. The end of the store is the end of the job: agents that lose it give up.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

from trainer.base import not_by_hand

PORT_VARIABLE = "SLIPWAY_STORE_PORT"
"""In the environment of the store: its port."""
LEFT_SECONDS = 10.0
"""After so long without anybody the job is over."""
LOOK_SECONDS = 1.0
TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
ESTABLISHED = "01"


class Visits:
    """Whether somebody came, who is there, and for how long nobody has been."""

    def __init__(self) -> None:
        self._came, self._left_at, self.asked_to_stop = False, 0.0, False

    def is_over(self, clients: int, now: float) -> bool:
        """Whether the store is needed no more; `now` is of a monotonic clock, in seconds."""
        if clients:
            self._came, self._left_at = True, now
            return False
        return self.asked_to_stop or (self._came and now - self._left_at >= LEFT_SECONDS)


def connections(port: int, tables: tuple[str, ...]) -> int:
    """How many connections to the port are established, by the kernel's tables of sockets (proc(5), /proc/net/tcp)."""
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return sum(row[3] == ESTABLISHED and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def main() -> int:
    """Serve until nobody needs the store; 1 when the port cannot be had."""
    visits, port = Visits(), int(os.environ[PORT_VARIABLE])

    def stop(*_: object) -> None:
        visits.asked_to_stop = True

    signal.signal(signal.SIGTERM, stop)
    try:
        listener = _listener(port)
    except OSError as error:
        print(f"trainer: the rendezvous store cannot have port {port}: {error}", file=sys.stderr)
        return 1
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("localhost", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    own = 1  # the store is a client of itself
    while not visits.is_over(connections(store.port, _tables()) - own, time.monotonic()):
        time.sleep(LOOK_SECONDS)
    return 0


def _listener(port: int) -> socket.socket:
    """A socket that listens on all addresses, IPv6 too where the machine has it."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _tables() -> tuple[str, ...]:
    return tuple(table.read_text() for table in TABLES if table.exists())


if __name__ == "__main__":
    not_by_hand.explain("trainer.node.rendezvous", "lets the nodes of a job on a cluster meet")
    code = main()
    sys.stderr.flush()
    os._exit(code)
