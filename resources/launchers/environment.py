"""Rank environment: the environment variables that every launcher sets for the ranks of a job. Pure."""

from collections.abc import Mapping

from slipway.resources.launchers.protocol import Job

JOB_VARIABLE = "SLIPWAY_JOB"
"""The variable with the name of a process's job."""
LONE_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
"""The variables that torchrun would set for a single rank."""


def rank_environment(job: Job, cores: float | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the ranks of one node.

    cores: the number of the node's cores; None if unknown. inherited: the environment of the node's processes, or that
    of all jobs of the cluster. The job's own variables override `inherited`.
    """
    environment = {**_threads(job, cores), **inherited}
    if job.is_lone:
        environment.update(LONE_RANK)
    # So that the log has the last lines of a rank that is killed.
    environment["PYTHONUNBUFFERED"] = "1"
    # With a shared store, a new rendezvous would read the stale addresses of the last one.
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    environment.update(job.environment)
    environment[JOB_VARIABLE] = job.name
    return environment


def _threads(job: Job, cores: float | None) -> dict[str, str]:
    """The number of threads of each rank. The ranks of a node share its cores; more threads would slow one another."""
    if cores is None:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, int(cores) // job.ranks_per_node))}
