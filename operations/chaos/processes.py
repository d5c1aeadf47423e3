"""The processes of a job of the embedded instance, by their part in it, as /proc shows them."""

import contextlib
import itertools
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from slipway.resources.fleet.protocol import NODE_VARIABLE
from slipway.resources.launchers.environment import JOB_VARIABLE
from slipway.trainer.base import processes, regular_file
from slipway.trainer.elastic.rendezvous_store import TABLES

KEEPER = "slipway.resources.launchers.local.keeper"
STORE = "slipway.resources.launchers.local.rendezvous"
NODE = "slipway.trainer.node.process"
SUPERVISOR = "slipway.trainer.supervisor"
RANK = "slipway.trainer"
WRITER = "slipway.trainer.checkpoint.saving.writer"
LISTENS = "0A"
"""The state of such a socket in the kernel's tables (proc(5), /proc/net/tcp; include/net/tcp_states.h)."""
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class JobProcess:
    """A live process of a job."""

    pid: int
    module: str
    """What Python runs in it."""
    node: str
    """Empty for the processes that belong to no node."""


def of_job(job: str, jobs: Path) -> list[JobProcess]:
    """All that is alive of the job of this name, by node and pid; `jobs` is the folder of the jobs."""
    keepers = processes.running("-m", KEEPER, str(jobs.resolve() / job))
    helpers = [pid for keeper in keepers for pid in (keeper, *processes.children(keeper))]
    candidates = map(_process, dict.fromkeys([*helpers, *processes.carrying({JOB_VARIABLE: job})]))
    return sorted(
        (process for process in candidates if process.module), key=lambda process: (process.node, process.pid)
    )


def running(job_processes: Sequence[JobProcess], *modules: str) -> list[JobProcess]:
    """Those of these processes that run one of the modules."""
    return [process for process in job_processes if process.module in modules]


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty for one that is gone, or another user's."""
    return dict(entry.split("=", 1) for entry in _strings(pid, "environ") if "=" in entry)


def listeners_at(url: str) -> list[int]:
    """The pids of those that listen at the host and port of a URL; none where its host is another machine."""
    parts = urlsplit(url)
    port = parts.port or PORTS.get(parts.scheme)
    if not parts.hostname or port is None or not _is_here(parts.hostname):
        return []
    rows = [line.split() for table in TABLES if table.exists() for line in table.read_text().splitlines()[1:]]
    listening = {
        f"socket:[{row[9]}]" for row in rows if row[3] == LISTENS and int(row[1].rpartition(":")[2], 16) == port
    }
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return sorted(pid for pid in pids if pid != os.getpid() and listening & _sockets(pid))


def _process(pid: int) -> JobProcess:
    arguments = _strings(pid, "cmdline")
    variables = environment(pid)
    modules = [name for flag, name in itertools.pairwise(arguments) if flag == "-m"]
    # torchrun names its own module, and then that of the ranks.
    return JobProcess(pid, modules[0] if modules else "", variables.get(NODE_VARIABLE, ""))


def _strings(pid: int, name: str) -> list[str]:
    """A list of strings in /proc; empty for a process that is gone, or another user's."""
    try:
        content = regular_file.read(Path("/proc", str(pid), name))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
    return [part.decode(errors="replace") for part in content.split(b"\0") if part]


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
    names = set[str]()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                names.add(str(entry.readlink()))
    return names
