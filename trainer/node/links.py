"""Links: the TCP connections that process groups of gloo have opened, so that all their exchanges can be ended at once.

gloo cannot abort: a rank that waits in an exchange waits until the others answer, or until a connection of the group
ends. So the connections that came while groups were made are remembered, and shutting them down makes each exchange
raise RuntimeError, on this rank and on those that it talks to.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")


class Links:
    """The connections of all process groups of this process, but those to the store on `store_port`."""

    def __init__(self) -> None:
        self._opened: dict[str, int] = {}
        self.store_port = 0

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Remember the connections that come while this context is open."""
        before = _sockets().keys()
        yield
        now = _sockets()
        self._opened |= {name: now[name] for name in now.keys() - before}

    def shut_down(self) -> None:
        """End the remembered connections that are still open; what waits on them raises RuntimeError."""
        now = _sockets()
        for name in self._opened.keys() & now.keys():
            with contextlib.suppress(OSError), _borrowed(now[name]) as connection:
                ports = connection.getsockname()[1], connection.getpeername()[1]
                if self.store_port not in ports:
                    connection.shutdown(socket.SHUT_RDWR)
        self._opened.clear()


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket of its own on the same connection; its end does not close the connection."""
    copy = socket.socket(fileno=os.dup(descriptor))
    try:
        yield copy
    finally:
        copy.close()


def _sockets() -> dict[str, int]:
    """The descriptors of this process's sockets, by the name that the kernel gives each."""
    found: dict[str, int] = {}
    for entry in DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            name = str(entry.readlink())
            if name.startswith("socket:"):
                found[name] = int(entry.name)
    return found
