"""The TCP connections of other processes: ended, or made deaf, as a broken network does it. Linux only.

A descriptor of another process is borrowed with pidfd_getfd(2), which the same user or root may do where the kernel
allows tracing. A connection that is shut down ends for both sides at once. One with a socket filter that takes no
packet (`SO_ATTACH_FILTER`, socket(7)) answers nothing any more, as behind a switch that has failed: both sides wait.
When the filter is taken away, TCP sends again what was lost.
"""

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_PIDFD_GETFD = 438  # <asm-generic/unistd.h>
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27  # <asm-generic/socket.h>
_TAKES_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF_RET | BPF_K, 0 bytes: <linux/filter.h>
_libc = ctypes.CDLL(None, use_errno=True)


def connections(pids: Iterable[int]) -> Iterator[socket.socket]:
    """Each TCP connection of these processes, as a socket of one's own on the same connection.

    Raises PermissionError where the kernel does not allow it.
    """
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError), _process(pid) as process:
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                if borrowed := _borrowed(process, entry):
                    with borrowed:
                        yield borrowed


def end(connection: socket.socket) -> None:
    """End the connection for both sides."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def deafen(connection: socket.socket) -> None:
    """Let it take no packet any more."""
    program = ctypes.create_string_buffer(_TAKES_NOTHING)
    connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))


def heal(connection: socket.socket) -> None:
    """Let it take packets again."""
    with contextlib.suppress(OSError):  # it has no filter
        connection.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


@contextlib.contextmanager
def _process(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _borrowed(process: int, entry: Path) -> socket.socket | None:
    """The connection behind a descriptor of a process; None where it is none, or is gone."""
    with contextlib.suppress(FileNotFoundError):
        if not str(entry.readlink()).startswith("socket:"):
            return None
        descriptor = _libc.syscall(_PIDFD_GETFD, process, int(entry.name), 0)
        if descriptor < 0:
            number = ctypes.get_errno()
            if number == 1:  # EPERM
                raise PermissionError(number, "the kernel does not allow to borrow a connection of another process")
            return None
        connection = socket.socket(fileno=descriptor)
        if (
            connection.family in (socket.AF_INET, socket.AF_INET6)
            and connection.type == socket.SOCK_STREAM
            and _is_open(connection)
        ):
            return connection
        connection.close()
    return None


def _is_open(connection: socket.socket) -> bool:
    try:
        connection.getpeername()
    except OSError:
        return False
    return True
