"""Hosting: the store of a job of one node, in a process beside the ranks: nobody else needs it, so no launcher does."""

import functools
import signal
import socket

from slipway.trainer.supervisor import beside

LOOPBACK = "127.0.0.1"


def start() -> tuple[int, int]:
    """Start the store on a free port of this machine alone; the pid of its process, which dies with this one, the port.

    Call it after torch has been imported, and before any thread is started. Raises OSError.
    """
    listener = socket.create_server((LOOPBACK, 0))
    port = int(listener.getsockname()[1])
    pid = beside.start(__name__, functools.partial(_serve, listener, port))
    listener.close()
    return pid, port


def _serve(listener: socket.socket, port: int) -> None:
    """The life of the store's process."""
    from torch._C._distributed_c10d import TCPStore

    store = TCPStore(LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    assert store.port == port
    while True:
        signal.pause()
