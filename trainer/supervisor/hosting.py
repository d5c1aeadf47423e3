"""Hosting: the store of a job of one node, in a process beside the ranks: nobody else needs it, so no launcher does."""

import os
import signal
import socket

from trainer.base import processes

LOOPBACK = "127.0.0.1"


def start() -> tuple[int, int]:
    """Start the store on a free port of this machine alone; the pid of its process, which dies with this one, the port.

    Call it after torch has been imported, and before any thread is started. Raises OSError.
    """
    listener = socket.create_server((LOOPBACK, 0))
    parent, port = os.getpid(), int(listener.getsockname()[1])
    pid = os.fork()
    if pid == 0:
        _serve(parent, listener, port)
    listener.close()
    return pid, port


def _serve(parent: int, listener: socket.socket, port: int) -> None:
    """The life of the store's process; does not return."""
    try:
        processes.die_with_parent(parent)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the ranks still need it
        from torch._C._distributed_c10d import TCPStore

        store = TCPStore(LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
        assert store.port == port
        while True:
            signal.pause()
    finally:
        os._exit(1)
