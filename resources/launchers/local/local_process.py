"""Local processes: the environment of a process, and starting a process that outlives its parent.

The environment consists of the variables of every launcher and those that only the local launcher needs.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.embedded import node_environment
from slipway.resources.launchers.environment import rank_environment
from slipway.resources.launchers.local.folder import LocalOrder
from slipway.trainer.node.agent import ADDRESS_VARIABLE, INDEX_VARIABLE

START_SECONDS = 60.0
"""How long a process may take until it has forked; long enough for Python's start on a busy machine."""
CONTROL_PLANE_VARIABLE = "SLIPWAY_CONTROL_PLANE"
"""The variable that marks processes of the control plane, which end with it; processes of jobs do not have it."""
LOCAL_ADDRESS = "127.0.0.1"


def start_detached(module: Sequence[str], log: Path, code: Path, inherited: Mapping[str, str], what: str) -> None:
    """Run `python -P -m` with a module and its arguments in the folder of `log`, and append its output to `log`.

    code: the folder from which it imports Slipway's packages. inherited: the caller's environment. what: its name in
    messages. Raises Unavailable if the process hangs or ends with an error.
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


def keeper_environment(code: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a keeper and its descendants, from the submitter's, with `code` first on Python's path."""
    environment = {name: value for name, value in inherited.items() if name != CONTROL_PLANE_VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), environment.get("PYTHONPATH")]))
    return environment


def local_rank_environment(order: LocalOrder, node: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of one node's processes, from the keeper's."""
    # A node without an index does not host the rendezvous store. The keeper does, so the store survives every node.
    without_index = {name: value for name, value in inherited.items() if name != INDEX_VARIABLE}
    return {
        **rank_environment(order.job, order.node_cores, without_index),
        **node_environment(order.fleet, node),
        ADDRESS_VARIABLE: LOCAL_ADDRESS,
    }
