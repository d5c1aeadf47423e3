"""Logs: what the nodes of a training wrote, of all its ranks, in the log of a run that somebody asked for."""

import dagster as dg
from pydantic import Field

from assets import pods
from resources import tails
from resources.compute import Compute, trainings, trials
from resources.tiers import Tiers
from resources.training_job import job_name
from resources.training_store import TrainingStore


class Wanted(dg.Config):
    training: str = Field(description="The training's id, as its partition is called, or a trial's")
    incarnation: int = Field(default=0, ge=0, description="Which start of it; 0 is the newest")
    tail_bytes: int = Field(default=65_536, ge=1, description="Of each node, the end of its output")


@dg.op(description="Reads the output of each node of a training.", tags=pods.tags("logs"))
def read_logs(context: dg.OpExecutionContext, config: Wanted, tiers: Tiers, compute: Compute) -> dg.Output[None]:
    """Raises Failure when there is no such training or incarnation, and what the launcher raises when it is away."""
    store = _store(config.training, tiers)
    newest = store.newest_claim()
    incarnation = config.incarnation or (newest.token.incarnation if newest else 0)
    if not newest or incarnation > newest.token.incarnation:
        raise dg.Failure(f"{store.id}: there is no incarnation {incarnation or 1}")
    found = compute.launcher().logs(job_name(store.id, incarnation), config.tail_bytes)
    for node, log in (found or tails.kept(store, incarnation)).items():
        context.log.info(f"{node}:\n{log}")
    return dg.Output(None, metadata={"incarnation": incarnation, "nodes": len(found), "kept": not found})


def _store(id: str, tiers: Tiers) -> TrainingStore:
    for known in (trainings(tiers), *trials(tiers).values()):
        if id in known.known():
            return known.store(id)
    raise dg.Failure(
        f"found {id!r}, expected the id of a training: the partitions of the training assets, or a trial's"
    )


@dg.job(description="Shows what the nodes of a training wrote, of all its ranks.")
def training_logs() -> None:
    read_logs()
