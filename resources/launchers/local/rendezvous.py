"""The rendezvous store of one job, in a process of its own: hosted by no node, it survives every node.

``python -m slipway.resources.launchers.local.rendezvous DESCRIPTOR`` serves on a socket that already listens: the nodes
can start at once, and their connections wait in the socket's queue while this process imports torch. Each line of its
standard input is the name of a node that is lost for the job, which the supervisors of the others then find in the
store (`slipway.trainer.elastic.generations`).
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
    console.explain("slipway.resources.launchers.local.rendezvous", "lets the nodes of an embedded job meet")
    main()
