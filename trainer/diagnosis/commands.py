"""Commands: a tool of the node, run for a short time; what it prints, or why there is nothing."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST_BYTES = 256 << 10
"""Of the output of one command; of a longer one, the end."""


class NoEvidence(Exception):
    """Some evidence is not available; the message has the reason."""


def executable(name: str) -> str:
    """The path of a tool: beside this Python, or on the path. Raises NoEvidence."""
    beside = Path(sys.executable).with_name(name)
    if os.access(beside, os.X_OK):
        return str(beside)
    path = shutil.which(name)
    if path:
        return path
    raise NoEvidence(f"{name} is not installed")


def output(command: Sequence[str], seconds: float) -> bytes:
    """The output of a command, with its errors. Raises NoEvidence if it fails, or is killed after the given seconds."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise NoEvidence(f"{command[0]}: {error.strerror}") from None
    try:
        printed, _ = process.communicate(timeout=max(seconds, 0.01))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()  # type: ignore[union-attr]
        raise NoEvidence(f"{Path(command[0]).name} had not ended after {seconds:.1f} s") from None
    if process.returncode != 0:
        lines = printed.decode(errors="replace").strip().splitlines()
        raise NoEvidence(
            f"{Path(command[0]).name} ended with exit code {process.returncode}: {lines[-1] if lines else ''}"
        )
    return printed[-MOST_BYTES:]
