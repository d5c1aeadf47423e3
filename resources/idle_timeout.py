"""Idle timeout: a process that takes as long as it takes, and is ended once it does nothing any more.

A deadline for the whole would punish the slow; a process that was stopped, or hangs, would keep its caller for ever.
So it is watched for what it does: time on the processor, bytes read and written, by itself and by all below it.
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
    """A process did nothing for too long, and was killed."""


@dataclass(frozen=True)
class EndedProcess:
    """How a process ended; `error` is what it wrote to standard error."""

    code: int
    error: str


def run(command: Sequence[str], folder: Path, idle_seconds: float = IDLE_SECONDS) -> EndedProcess:
    """Run a command to its end. Raises Idle when it did nothing for so long; it is killed then, with all below it."""
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
    done, last = (-1, -1), time.monotonic()
    while True:
        try:
            process.wait(min(LOOK_SECONDS, idle_seconds))
            return
        except subprocess.TimeoutExpired:
            now = processes.activity(process.pid)
        if now != done:
            done, last = now, time.monotonic()
        elif time.monotonic() - last > idle_seconds:
            raise Idle(f"process {process.pid} did nothing for {idle_seconds:.0f} s, and was killed")
