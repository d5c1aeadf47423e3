"""A child process that prints one JSON document: what it measured, and this process need not import for it."""

import functools
import json
import os
import subprocess
from typing import Any

from slipway.trainer.base import parsing
from slipway.trainer.base.processes import die_with_parent

LAST_LINES = 5
"""So many of a child's last lines explain why it left no document."""


def json_of(command: list[str], seconds: float) -> dict[str, Any]:
    """The document that a command prints, whatever its exit code; the command dies with this process.

    Raises ValueError where it prints none, or has not ended after so many seconds.
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
        said = " | ".join(done.stderr.strip().splitlines()[-LAST_LINES:])
        raise ValueError(f"{command[2]}: it ended with exit code {done.returncode} and no result: {said}")
    return document
