"""Processes by parentage and by environment: die with the parent, adopt orphans, kill all descendants.

torchrun puts every rank into a session of its own, so neither a session nor a process group holds the
processes of a node together. Parentage does, as long as a subreaper stands above every orphan. Linux only.

`ExitCode` has the exit codes of a rank; `json_of` starts a child that measures something with imports that this
process does not need.
"""

import contextlib
import ctypes
import enum
import functools
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipway.trainer.base import parsing, regular_file

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER = 36

# Loaded here, not at the first call: that call may be made between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True)
LAST_LINES = 5
"""So many of a child's last lines explain why it left no document."""
KILL_SECONDS = 10.0
"""Descendants may take this long to end after SIGKILL."""


def die_with_parent(parent: int | None = None, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send `by` to the calling process when its parent dies; at once if the parent is dead already.

    `parent` is the pid of that parent, by default the parent at the time of the call. The kernel watches the thread of
    the parent that forked: fork from a thread that lives as long as its process. The setting survives exec, and
    children do not inherit it.
    """
    parent = os.getppid() if parent is None else parent
    _prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os.kill(os.getpid(), by)


def bind_to_launcher() -> None:
    """Die with the parent when it is a process of a launcher; a process that was started by hand has no such parent."""
    if "TORCHELASTIC_RUN_ID" in os.environ or "SLIPWAY_NODE" in os.environ:
        die_with_parent()


def adopt_orphans() -> None:
    """Become the parent of every process below the caller whose own parent dies (a subreaper)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_descendants() -> list[int]:
    """Kill and reap every process below the caller until none is left; returns the pids left after `KILL_SECONDS`.

    The caller must be a subreaper, or an orphan escapes between two rounds. All children are reaped, so afterwards no
    `subprocess.Popen` has a status.
    """
    deadline = time.monotonic() + KILL_SECONDS
    while below := descendants(os.getpid()):
        if time.monotonic() > deadline:
            return below
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.01)
    return []


class StopRequest:
    """True once this process has received SIGTERM."""

    def __init__(self) -> None:
        self._is_requested = False
        signal.signal(signal.SIGTERM, self._ask)

    def __bool__(self) -> bool:
        return self._is_requested

    def _ask(self, *_: object) -> None:
        self._is_requested = True


def children(pid: int) -> list[int]:
    """The pids of the direct children of `pid`, zombies included."""
    return [child for child, parent in _parents().items() if parent == pid]


def descendants(pid: int) -> list[int]:
    """The pids of all processes below `pid`, parents before their children, zombies included."""
    offspring: dict[int, list[int]] = {}
    for child, parent in _parents().items():
        offspring.setdefault(parent, []).append(child)
    pids = [pid]
    for above in pids:
        pids.extend(offspring.get(above, []))
    return pids[1:]


def carrying(environment: Mapping[str, str]) -> list[int]:
    """The pids of the live processes that were started with all of `environment` in theirs."""
    variables = {f"{name}={value}".encode() for name, value in environment.items()}
    return [pid for pid in _pids() if variables <= set(_read(pid, "environ").split(b"\0"))]


def running(*arguments: str) -> list[int]:
    """The pids of the live processes whose command line ends in these arguments."""
    suffix = "\0".join(["", *arguments, ""]).encode()
    # A forked process that stands for a command has zeros after its words.
    return [pid for pid in _pids() if (_read(pid, "cmdline").rstrip(b"\0") + b"\0").endswith(suffix)]


def holding(file: Path) -> list[int]:
    """The pids of the processes that have the file open, as far as this user may inspect them."""
    path = str(file.resolve())
    return [pid for pid in _pids() if path in _open_files(pid)]


def command_line(pid: int) -> str:
    """The command line of a process, cut short; empty when it is gone."""
    text = " ".join(_read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def kill_tree(pid: int) -> None:
    """Kill a process and its descendants, including stopped ones."""
    for process_id in [pid, *descendants(pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)


def activity(pid: int) -> tuple[int, int]:
    """The work of a process and its descendants so far: ticks of the processor, and bytes read and written."""
    ticks = io_bytes = 0
    for process_id in [pid, *descendants(pid)]:
        fields = _read(process_id, "stat").rpartition(b")")[2].split()
        ticks += sum(map(int, fields[11:13]))  # utime and stime
        for line in _read(process_id, "io").splitlines()[:2]:  # rchar and wchar
            io_bytes += int(line.split()[1])
    return ticks, io_bytes


def parent_of(pid: int) -> int | None:
    """The pid of the parent; None if there is no process `pid`."""
    # pid (name) state ppid ...: the name may contain blanks and brackets.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else None


def begun_at() -> float:
    """When this process began, in seconds since the epoch, to a hundredth of a second."""
    begun = start_of(os.getpid())
    assert begun is not None
    return begun


def start_of(pid: int) -> float | None:
    """When a process began, as `begun_at`; None when it is gone, or has ended and only its parent has not heard so."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - begun_ticks(pid) / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def begun_ticks(pid: int) -> int:
    """The begin of a process, in ticks since the boot, which identifies it with its pid; 0 if there is none."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[19]) if fields else 0


def json_of(command: list[str], seconds: float) -> dict[str, Any]:
    """The document that a command prints, whatever its exit code; the command dies with this process.

    Raises ValueError if it prints none, or does not end in time.
    """
    bind = functools.partial(die_with_parent, parent=os.getpid())
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, preexec_fn=bind
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{command[2]}: it did not end within {seconds:g} s") from None
    try:
        document = parsing.value(done.stdout)
    except json.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        stderr_tail = " | ".join(done.stderr.strip().splitlines()[-LAST_LINES:])
        raise ValueError(f"{command[2]}: it ended with exit code {done.returncode} and no result: {stderr_tail}")
    return document


class ExitCode(enum.IntEnum):
    DONE = 0
    """The training is done, or has stopped on request."""
    FAILED = 1
    """The training diverged, found no memory, could not write to a disk, or its node lacked something."""
    UNUSABLE = 2
    """The configuration cannot be trained."""
    SUPERSEDED = 3
    """A newer incarnation or generation has taken the training over."""
    GIVEN_UP = 4
    """Ranks of this node were killed again and again. A node that is killed itself ends with 128 + n, as a shell has
    it, and a launcher that starts it anew tells the two apart."""


def _parents() -> dict[int, int]:
    """The parent of every process of the machine."""
    return {pid: parent for pid in _pids() if (parent := parent_of(pid)) is not None}


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    """A file of the process in /proc; empty when the process is gone or belongs to another user."""
    try:
        return regular_file.read(Path("/proc", str(pid), name))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _open_files(pid: int) -> set[str]:
    """The names of a process's open files; empty if it is gone or belongs to another user."""
    paths = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for link in Path("/proc", str(pid), "fd").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                paths.add(str(link.readlink()))
    return paths


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
