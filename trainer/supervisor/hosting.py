"""Hosting: the job's store in a process of its own on the first machine, where the launcher hosts none."""

import os
import signal
import socket

from trainer.base import processes


def start(port: int) -> tuple[int, int]:
    """Start the store on this port (0: any); the pid of its process and the port. It dies with this process.

    Call it after torch has been imported, and before any thread is started. Raises OSError for a port that is taken.
    """
    listener = (
        socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        if _has_ipv6()
        else (socket.create_server(("", port)))
    )
    parent, found = os.getpid(), int(listener.getsockname()[1])
    pid = os.fork()
    if pid == 0:
        _serve(parent, listener, found)
    listener.close()
    return pid, found


def _has_ipv6() -> bool:
    return socket.has_dualstack_ipv6()


def _serve(parent: int, listener: socket.socket, port: int) -> None:
    """The life of the store's process; does not return."""
    try:
        processes.die_with_parent(parent)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the ranks still need it
        from torch._C._distributed_c10d import TCPStore

        store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
        assert store.port == port
        while True:
            signal.pause()
    finally:
        os._exit(1)
