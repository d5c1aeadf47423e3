"""A process of this machine: its environment, and how one starts that outlives whoever starts it.

The environment is that of every launcher's, and what only this machine needs.
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
"""What a process may take until it has forked: the start of Python on a busy machine."""
CONTROL_PLANE_VARIABLE = "SLIPWAY_CONTROL_PLANE"
"""Marks the processes of the control plane, which end with the control plane; a job's processes do not."""
LOCAL_ADDRESS = "127.0.0.1"


def start_detached(module: Sequence[str], log: Path, code: Path, inherited: Mapping[str, str], what: str) -> None:
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


def keeper_environment(code: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a keeper and its descendants, from the submitter's: `code` comes first on Python's path."""
    environment = {name: value for name, value in inherited.items() if name != CONTROL_PLANE_VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), environment.get("PYTHONPATH")]))
    return environment


def local_rank_environment(order: LocalOrder, node: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of one node's processes, from the keeper's."""
    # The keeper hosts the rendezvous store. A node without an index hosts none, and the store survives every node.
    without_index = {name: value for name, value in inherited.items() if name != INDEX_VARIABLE}
    return {
        **rank_environment(order.job, order.node_cores, without_index),
        **node_environment(order.fleet, node),
        ADDRESS_VARIABLE: LOCAL_ADDRESS,
    }
