"""Idle timeout: run a process without a deadline, but kill it once it makes no progress.

A deadline would kill slow but healthy processes; without any limit, a stopped or hanging process would block its caller
for ever. So the watch looks at the CPU time and the bytes read and written of the process and of all its descendants.
"""

import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import processes

IDLE_SECONDS = 600.0
LOOK_SECONDS = 1.0


class Idle(Exception):
    """A process made no progress for too long, and was killed."""


@dataclass(frozen=True)
class EndedProcess:
    """The exit code of a process, and its standard error."""

    code: int
    error: str


def run(command: Sequence[str], folder: Path, idle_seconds: float = IDLE_SECONDS) -> EndedProcess:
    """Run a command to its end. After `idle_seconds` without progress, kill it with its children and raise Idle."""
    with tempfile.TemporaryFile() as error:
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=error) as process:
            try:
                _watch(process, idle_seconds)
            except BaseException:
                processes.kill_tree(process.pid)
                raise
        error.seek(0)
        return EndedProcess(process.returncode, error.read().decode(errors="replace"))


def _watch(process: "subprocess.Popen[bytes]", idle_seconds: float) -> None:
    done = (-1, -1)
    last = time.monotonic()
    while True:
        try:
            process.wait(min(LOOK_SECONDS, idle_seconds))
            return
        except subprocess.TimeoutExpired:
            now = processes.activity(process.pid)
        if now != done:
            done = now
            last = time.monotonic()
        elif time.monotonic() - last > idle_seconds:
            raise Idle(f"process {process.pid} did nothing for {idle_seconds:.0f} s, and was killed")
