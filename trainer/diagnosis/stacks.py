"""Stacks: the stacks of all threads of this node's ranks, written by the ranks themselves.

The node's process makes a folder, and its descendants get the path in their environment. Each rank opens a file there
when it starts. `faulthandler` writes the stacks of all its threads into the file, on a signal from the node's process
and when the rank crashes. The signal's handler runs in C, so a rank that waits inside a C call (a collective, a read)
answers too; a rank that is stopped, or waits for a disk, cannot. The file outlives a killed rank.
"""

import contextlib
import faulthandler
import linecache
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slipway.trainer.base import processes
from slipway.trainer.base.units import DAY
from slipway.trainer.record.incarnation import GENERATION_VARIABLE

VARIABLE = "SLIPWAY_STACKS"
"""The folder, for all processes of a node."""
SIGNAL = signal.SIGUSR1
STOPPED = "T"
"""The state of a stopped process (SIGSTOP)."""
PREFIX = "slipway-stacks-"
FORGOTTEN_SECONDS = DAY
"""The folder of a killed node's process is removed after this time."""
MOST_BYTES = 256 << 10
"""Of one rank's stacks."""
STILL_SECONDS = 0.03
"""A file that has not grown for this time is complete."""
SNAPSHOT_SECONDS = 0.1
"""So long the end of a generation may wait for the stacks of the ranks that are left."""
_FILE_NAME = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*:$")
_file: IO[bytes] | None = None


@dataclass(frozen=True)
class StackFile:
    """The file of one rank."""

    generation: int
    rank: int
    pid: int
    path: Path


@dataclass(frozen=True)
class StackFrame:
    """One call of a stack."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The line of code; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.function} ({Path(self.file).name}:{self.line})"


def open_file() -> None:
    """Have this rank answer to the node's process; does nothing in a rank that no node's process started.

    A process that was forked from one that did so calls it again.
    """
    global _file
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    with contextlib.suppress(OSError, ValueError):  # without it a rank trains as well
        path = Path(folder) / f"{generation()}.{int(os.environ.get('RANK', '0')):05d}.{os.getpid()}"
        file = open(path, "ab", buffering=0)  # noqa: SIM115 - it stays open as long as the process
        faulthandler.enable(file, all_threads=True)
        faulthandler.register(SIGNAL, file, all_threads=True, chain=False)
        _file = file


def make_folder() -> Path | None:
    """A folder for the ranks of this node; None if it cannot be made. Removes folders of dead processes."""
    above = Path(tempfile.gettempdir())
    with contextlib.suppress(OSError):
        for leftover in above.glob(f"{PREFIX}*"):
            pid = leftover.name.removeprefix(PREFIX).partition("-")[0]
            file_stat = leftover.stat()
            # Another container may share the folder, and has other pids, so young folders stay.
            if file_stat.st_uid != os.getuid() or time.time() - file_stat.st_mtime < FORGOTTEN_SECONDS:
                continue
            if pid.isdecimal() and processes.parent_of(int(pid)) is None:
                shutil.rmtree(leftover, ignore_errors=True)
    try:
        return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    except OSError:
        return None


def generation() -> int:
    """The generation of this process, from its environment; 0 without a supervisor."""
    text = os.environ.get(GENERATION_VARIABLE) or "0"
    return int(text) if text.isdecimal() else 0


def opened(folder: Path, generation: int | None = None) -> list[StackFile]:
    """The files of the ranks of a generation, by rank; those of the newest one where it has none, or none is given."""
    timed_files: list[tuple[float, StackFile]] = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            name = _FILE_NAME.fullmatch(path.name)
            if name:
                timed_files.append((path.stat().st_mtime, StackFile(int(name[1]), int(name[2]), int(name[3]), path)))
    present = {file.generation for _, file in timed_files}
    chosen_generation = generation if generation in present else max(present, default=0)
    newest = {
        file.rank: file
        for _, file in sorted(timed_files, key=lambda pair: pair[0])
        if file.generation == chosen_generation
    }
    return [newest[rank] for rank in sorted(newest)]


def snapshot(generation: int) -> None:
    """Make the ranks of this node's generation write their stacks before they are killed; returns almost at once.

    Their files stay, so that the node's process can read them when the ranks are gone.
    """
    folder = os.environ.get(VARIABLE)
    if folder:
        files = opened(Path(folder), generation)
        wait(files, ask(files), SNAPSHOT_SECONDS)


def ask(files: list[StackFile]) -> dict[int, int]:
    """Make these ranks write their stacks; returns at once, with the former bytes of each file, by rank.

    It skips ranks that are gone, or would die of the signal.
    """
    before = {}
    for file in files:
        with contextlib.suppress(OSError):
            size = file.path.stat().st_size
            if _catches(file.pid):
                os.kill(file.pid, SIGNAL)
                before[file.rank] = size
    return before


def wait(files: list[StackFile], before: Mapping[int, int], seconds: float) -> None:
    """Wait until the ranks have written, for at most `seconds`."""
    deadline = time.monotonic() + seconds
    still = dict[int, tuple[int, float]]()
    pending_files = [file for file in files if file.rank in before and not is_frozen(state(file.pid))]
    while pending_files and (now := time.monotonic()) < deadline:
        for file in list(pending_files):
            size = _size(file.path)
            if size <= before[file.rank] and state(file.pid):
                continue
            last_size, since = still.get(file.rank, (-1, now))
            still[file.rank] = (size, since if size == last_size else now)
            if size == last_size and now - since >= STILL_SECONDS:
                pending_files.remove(file)
        time.sleep(0.01)


def text(file: StackFile, start: int = 0) -> str:
    """A rank's output since its file had `start` bytes; only the end if it is long. Raises OSError."""
    with open(file.path, "rb") as opened:
        opened.seek(max(start, os.fstat(opened.fileno()).st_size - MOST_BYTES))
        return opened.read(MOST_BYTES).decode(errors="replace")


def frame(line: str) -> StackFrame | None:
    """The call in a line of `faulthandler`'s text; None if the line has none."""
    match = _FRAME.match(line)
    return StackFrame(match["file"], int(match["line"]), match["function"]) if match else None


def main_thread(written: str) -> list[StackFrame]:
    """The calls of the training thread, the innermost one first; empty if there are none.

    It is the thread whose outermost call is not Python's own start of a thread.
    """
    threads: list[list[StackFrame]] = []
    for line in written.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and (call := frame(line)):
            threads[-1].append(call)
    return next((frames for frames in reversed(threads) if frames and frames[-1].function != "_bootstrap"), [])


def state(pid: int) -> str:
    """The state of a process, one letter as ps shows it; empty for one that is gone or has ended."""
    try:
        state_letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return "" if state_letter in "ZX" else state_letter


def is_frozen(state: str) -> bool:
    """Whether a process in this state answers no signal: it is stopped, traced, or waits for a disk."""
    return state in ("T", "t", "D")


def _catches(pid: int) -> bool:
    """Whether the process has a handler for the signal, by its mask in /proc (proc(5), SigCgt)."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
