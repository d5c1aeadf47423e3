"""Links: the TCP connections that process groups of gloo have opened, so that all their exchanges can be ended at once.

gloo cannot abort: a rank that waits in an exchange waits until the others answer, or until a connection of the group
ends. So the connections that came while groups were made are remembered, and shutting them down makes each exchange
raise RuntimeError, on this rank and on those that it talks to.
"""

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")
SHORTAGE_SECONDS = 30.0
"""For how long connections that cannot be ended for want of memory or descriptors are tried again."""
RETRY_SECONDS = 0.05
SHORTAGES = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)
NOT_CONNECTED = (errno.ENOTCONN, errno.EBADF)
"""The errors of a connection that has ended meanwhile."""


class Links:
    """The connections of all process groups of this process, but those to the store on `store_port`."""

    def __init__(self) -> None:
        self._opened: set[str] = set()
        self._before: frozenset[str] | None = None
        self.store_port = 0

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Remember the connections that come while this context is open."""
        self._before = frozenset(sockets())
        try:
            yield
        finally:
            before, self._before = self._before, None
            self._opened |= sockets() - before

    def shut_down(self) -> None:
        """End the remembered connections that are still open; what waits on them raises RuntimeError.

        While connections are being opened, those that came so far end too, and with them those to the store. A rank
        often comes here because its memory has run out, so a shortage is waited for. Raises OSError or MemoryError
        when it lasts.
        """
        deadline = time.monotonic() + SHORTAGE_SECONDS
        while True:
            try:
                return self._shut_down()
            except (OSError, MemoryError) as error:
                if not _is_shortage(error) or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _shut_down(self) -> None:
        before = self._before
        now = sockets()
        if before is not None:
            end(now - before)
        end(self._opened & now, self.store_port)
        self._opened.clear()


def sockets() -> set[str]:
    """The names that the kernel gives to the sockets of this process; no two sockets ever have the same one."""
    return set(_descriptors())


def end(names: Iterable[str], spared_port: int = 0) -> None:
    """End these connections, but none to `spared_port`; what waits on them fails."""
    now = _descriptors()
    for name in now.keys() & set(names):
        with _unless_ended(), _borrowed(now[name]) as connection:
            ports = connection.getsockname()[1], connection.getpeername()[1]
            if not spared_port or spared_port not in ports:
                connection.shutdown(socket.SHUT_RDWR)


def limit_answers(names: Iterable[str], seconds: int) -> None:
    """Have what reads from these connections fail when nothing has come for so long (SO_RCVTIMEO, socket(7))."""
    now = _descriptors()
    for name in now.keys() & set(names):
        with _unless_ended(), _borrowed(now[name]) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


@contextlib.contextmanager
def _unless_ended() -> Iterator[None]:
    """Work on a connection, which is nothing to do where it has ended."""
    try:
        yield
    except OSError as error:
        if error.errno not in NOT_CONNECTED:
            raise


def _is_shortage(error: OSError | MemoryError) -> bool:
    return isinstance(error, MemoryError) or error.errno in SHORTAGES


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket of its own on the same connection; its end does not close the connection."""
    copy = socket.socket(fileno=os.dup(descriptor))
    try:
        yield copy
    finally:
        copy.close()


def _descriptors() -> dict[str, int]:
    """The descriptors of this process's sockets, by the name that the kernel gives each."""
    descriptors: dict[str, int] = {}
    for entry in DESCRIPTORS.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            name = str(entry.readlink())
            if name.startswith("socket:"):
                descriptors[name] = int(entry.name)
    return descriptors
