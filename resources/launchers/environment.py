"""The environment of a rank, as far as every launcher gives it. Pure."""

from collections.abc import Mapping

from slipway.resources.launchers.protocol import Job

JOB_VARIABLE = "SLIPWAY_JOB"
"""The name of the job that a process belongs to."""
LONE_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
"""What torchrun would tell a lone rank."""


def rank_environment(job: Job, cores: float | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the ranks of one node.

    cores: the node's, None where their number is unknown. inherited: the environment that the node's processes
    inherit, or that the cluster gives to all jobs. The job's own additions win over `inherited`.
    """
    return {
        **_threads(job, cores),
        **inherited,
        **(LONE_RANK if job.is_lone else {}),
        # The log holds the last lines of a rank that is killed.
        "PYTHONUNBUFFERED": "1",
        # With the agents' store shared, a new rendezvous reads the stale addresses of the last one.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        **job.environment,
        JOB_VARIABLE: job.name,
    }


def _threads(job: Job, cores: float | None) -> dict[str, str]:
    """The ranks of a node share its cores: with more threads than cores, threads wait for one another."""
    return {} if cores is None else {"OMP_NUM_THREADS": str(max(1, int(cores) // job.ranks_per_node))}
