"""The environment of a local job's processes: that of every launcher's, and what only this machine needs. Pure."""

import os
from collections.abc import Mapping
from pathlib import Path

from slipway.resources.fleet.embedded import node_environment
from slipway.resources.launchers.environment import rank_environment
from slipway.resources.launchers.local.folder import LocalOrder
from slipway.trainer.node.agent import ADDRESS_VARIABLE, INDEX_VARIABLE

CONTROL_PLANE_VARIABLE = "SLIPWAY_CONTROL_PLANE"
"""Marks the processes of the control plane, which end with the control plane; a job's processes do not."""
LOCAL_ADDRESS = "127.0.0.1"


def keeper_environment(code: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a keeper and its descendants, from the submitter's: `code` comes first on Python's path."""
    environment = {name: value for name, value in inherited.items() if name != CONTROL_PLANE_VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), environment.get("PYTHONPATH")]))
    return environment


def local_rank_environment(order: LocalOrder, node: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of one node's processes, from the keeper's."""
    # The keeper hosts the rendezvous store. A node without an index hosts none, and the store survives every node.
    given = {name: value for name, value in inherited.items() if name != INDEX_VARIABLE}
    return {
        **rank_environment(order.job, order.node_cores, given),
        **node_environment(order.fleet, node),
        ADDRESS_VARIABLE: LOCAL_ADDRESS,
    }
