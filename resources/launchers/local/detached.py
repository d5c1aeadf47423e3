"""A process of this machine that outlives whoever starts it: it forks, and the call returns once it is on its own."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from slipway.resources.launchers.local.environment import keeper_environment
from slipway.resources.unavailable import Unavailable

START_SECONDS = 60.0
"""What a process may take until it has forked: the start of Python on a busy machine."""


def start(module: Sequence[str], log: Path, code: Path, inherited: Mapping[str, str], what: str) -> None:
    """Run `python -P -m` with a module and its arguments, in the folder of `log`, where its output is appended.

    code: what it imports Slipway's packages from. inherited: the starter's environment. what: names it in messages.
    Raises Unavailable for a process that hangs, or that ends with an error.
    """
    with log.open("ab") as output:
        try:
            ended = subprocess.call(
                [sys.executable, "-P", "-m", *module],
                cwd=log.parent,
                env=keeper_environment(code, inherited),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                timeout=START_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{what} hung for {START_SECONDS:.0f} s") from None
    if ended != 0:
        raise Unavailable(f"{what} did not start: exit code {ended}, see {log}")
