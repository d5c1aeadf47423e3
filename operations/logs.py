"""Logs: shows what the nodes of a training wrote, with all its ranks, in the log of the run that reads them."""

import dagster as dg
from pydantic import Field

from slipway.assets.execution import pods
from slipway.resources.compute.protocol import Compute
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.logs import kept_tails
from slipway.resources.trainings.store import TrainingStore, all_trainings, all_trials


class LogsConfig(dg.Config):
    """Which logs to show."""

    training: str = Field(description="The id of a training, which is its partition, or of a trial")
    incarnation: int = Field(default=0, ge=0, description="Which incarnation; 0 is the newest")
    tail_bytes: int = Field(default=65_536, ge=1, description="So many bytes from the end of each node's output")


@dg.op(description="Reads the output of each node of a training.", tags=pods.tags("logs"))
def read_logs(context: dg.OpExecutionContext, config: LogsConfig, tiers: Tiers, compute: Compute) -> dg.Output[None]:
    """Raises Failure when there is no such training or incarnation, and what the launcher raises when it is away."""
    store = _store(config.training, tiers)
    newest = store.read().incarnation
    incarnation = config.incarnation or newest
    if not newest or incarnation > newest:
        raise dg.Failure(f"{store.id}: found no incarnation {incarnation or 1}, expected one of 1 to {newest}")
    logs = compute.launcher().logs(job_name(store.id, incarnation), config.tail_bytes)
    for node, log in (logs or kept_tails(store, incarnation)).items():
        context.log.info(f"{node}:\n{log}")
    return dg.Output(None, metadata={"incarnation": incarnation, "nodes": len(logs), "kept": not logs})


def _store(id: str, tiers: Tiers) -> TrainingStore:
    for root in (all_trainings(tiers), *all_trials(tiers).values()):
        if id in root.ids():
            return root.store(id)
    raise dg.Failure(f"found {id!r}, expected the id of a training (the partition of a training asset) or of a trial")


@dg.job(name="training_logs", description="Shows what the nodes of a training wrote, with all its ranks.")
def job() -> None:
    read_logs()
