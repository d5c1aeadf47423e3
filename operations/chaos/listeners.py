"""Listeners: the processes of this machine that answer at an address of the network, as /proc shows them (Linux)."""

import contextlib
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from slipway.trainer.node.rendezvous import TABLES

LISTENS = "0A"
"""The state of such a socket in the kernel's tables (proc(5), /proc/net/tcp; include/net/tcp_states.h)."""
PORTS = {"http": 80, "https": 443}


def of(url: str) -> list[int]:
    """The pids of those that listen at the host and port of a URL; none where its host is another machine."""
    parts = urlsplit(url)
    port = parts.port or PORTS.get(parts.scheme)
    if not parts.hostname or port is None or not _is_here(parts.hostname):
        return []
    rows = [line.split() for table in TABLES if table.exists() for line in table.read_text().splitlines()[1:]]
    found = {f"socket:[{row[9]}]" for row in rows if row[3] == LISTENS and int(row[1].rpartition(":")[2], 16) == port}
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return sorted(pid for pid in pids if pid != os.getpid() and found & _sockets(pid))


def _is_here(host: str) -> bool:
    """Whether an address of the host is one of this machine: only such an address can be listened at."""
    with contextlib.suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, kind) as tried:
                tried.bind(address)
                return True
    return False


def _sockets(pid: int) -> set[str]:
    """The sockets of a process, as its descriptors name them; none of one that is gone, or is another user's."""
    found = set[str]()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(entry.readlink()))
    return found
