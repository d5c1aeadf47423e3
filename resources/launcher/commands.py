"""What a node runs, and what its processes find in their environment. Pure."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from resources.fleet.embedded import node_environment
from resources.launcher.folder import Order
from resources.launcher.protocol import Job

JOB_VARIABLE = "SLIPWAY_JOB"
CONTROL_PLANE_VARIABLE = "SLIPWAY_CONTROL_PLANE"
"""Marks the processes of the control plane, which end with it; a job's do not."""
SIBLING_GRACE_SECONDS = 3
"""What the ranks of a node get to end in when one of them has failed."""


def world_size(job: Job) -> int:
    """The ranks of the whole job."""
    return len(job.nodes) * job.ranks_per_node


def rank_command(job: Job, config: Path, rendezvous: int) -> list[str]:
    """The command of one node: torchrun at the port of the rendezvous store, or the lone rank itself.

    A lone rank needs no agent, and is spared the seconds in which an agent imports torch.
    """
    if world_size(job) == 1:
        return [*_resolved(job.command), str(config)]
    return [
        # -P: what lies in the job's folder must not stand in for a module of the agent's.
        *(sys.executable, "-P", "-m", "torch.distributed.run"),
        *(f"--nnodes={len(job.nodes)}", f"--nproc-per-node={job.ranks_per_node}", "--max-restarts=0"),
        *(f"--rdzv-id={job.name}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{rendezvous}"),
        # No node hosts the store, so none takes it along when it dies.
        "--rdzv-conf=is_host=0,last_call_timeout=3,keep_alive_interval=1",
        *("--local-addr=127.0.0.1", f"--shutdown-timeout={SIBLING_GRACE_SECONDS}"),
        *("--no-python", *_resolved(job.command), str(config)),
    ]


def _resolved(command: tuple[str, ...]) -> tuple[str, ...]:
    """`command` with the Python of this process for `python`."""
    return (sys.executable, *command[1:]) if command[0] == "python" else command


def keeper_environment(code: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a keeper and all below it, from the submitter's: `code` comes first on Python's path."""
    environment = {name: value for name, value in inherited.items() if name != CONTROL_PLANE_VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), environment.get("PYTHONPATH")]))
    return environment


def rank_environment(order: Order, node: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of one node's processes, from the keeper's; the job's own additions win over that.

    A node's ranks share its cores, unless somebody said how many threads each gets: more would spin in each
    other's way.
    """
    job = order.job
    lone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    return {
        "OMP_NUM_THREADS": str(max(1, order.node_cores // job.ranks_per_node)),
        **inherited,
        **(lone if world_size(job) == 1 else {}),
        # A rank that is killed has its last words in the log.
        "PYTHONUNBUFFERED": "1",
        # With the agents' store shared, a new rendezvous reads the stale addresses of the last one.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        **job.environment,
        **node_environment(order.fleet, node),
        JOB_VARIABLE: job.name,
    }
