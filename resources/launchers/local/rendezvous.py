"""The rendezvous store of one job, in a process of its own, so that it survives every node.

``python -m slipway.resources.launchers.local.rendezvous DESCRIPTOR`` serves on a socket that already listens. So the
nodes can start at once, and their connections wait in the socket's queue while this process imports torch. Each line of
its standard input is the name of a lost node; the supervisors of the other nodes find it in the store
(`slipway.trainer.elastic.generations`).
"""

import signal
import socket
import sys

from slipway.trainer.base import console
from slipway.trainer.elastic.generations import LOST


def main() -> None:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.socket(fileno=int(sys.argv[1]))
    port = listener.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    assert store.port == port
    for line in sys.stdin:
        store.set(f"{LOST}/{line.strip()}", "")
    signal.pause()


if __name__ == "__main__":
    console.explain("slipway.resources.launchers.local.rendezvous", "serves the rendezvous store of an embedded job")
    main()
