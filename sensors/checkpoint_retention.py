"""Retention of checkpoints: each hour, what no rule keeps and nobody refers to goes from the tiers that nodes share.

A checkpoint is referred to by a registered model, by a training that starts from it, by an evaluation that has not
been done, and by a judgement that is due. Its partition is deleted by the sensor that showed it.
"""

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from assets import on_nodes, pods
from assets.evaluation import evaluated, score_of
from resources.checkpoint_retention import Patience, condemned, decide
from resources.compute import Compute, trainings, trials
from resources.registry import MANIFEST_TAG, Registry
from resources.tiers import Tiers
from resources.tracking import Tracking
from resources.training_store import Trainings, TrainingStore
from sensors import checkpoint_arrivals, promotions
from trainer.checkpoint import retention
from trainer.checkpoint.tiers import Unavailable
from trainer.node_task import Discard

HOURLY = "17 * * * *"
Referred = dict[str, list[str]]
"""By a commit's name, or by its manifest, who refers to it."""


class Limits(dg.Config):
    """How long what does not count stays."""

    damaged_days: float = Field(default=30.0, ge=0, description="A copy that was found damaged")
    unlisted_hours: float = Field(default=24.0, ge=0, description="A checkpoint that is on no record")
    dry_run: bool = Field(default=False, description="Remove nothing, and say what would go")


@dg.op(
    description="Removes the checkpoints that no rule of their training keeps and nobody refers to.",
    tags=pods.tags("checkpoint_retention"),
)
def retain_checkpoints(
    context: dg.OpExecutionContext, config: Limits, tiers: Tiers, tracking: Tracking, compute: Compute
) -> dg.Output[None]:
    """One training after the other. Raises what the registry raises when it is away: what it refers to is not known."""
    models = registered(Registry(tracking, tiers.durable_path))
    told: dict[str, Any] = {}
    failed: list[str] = []
    over: list[TrainingStore] = []
    for known in [trainings(tiers), *trials(tiers).values()]:
        for store in map(known.store, known.known()):
            try:
                told |= _retain(context, config, tiers, known, store, models)
                if store.exit() is not None and not store.unfinished:
                    over.append(store)
            except (Unavailable, OSError) as error:
                failed.append(f"{store.id}: {error}")
    if not config.dry_run:
        failed += _clear(context, compute, tiers, over)
    if failed:
        raise dg.Failure("; ".join(failed), metadata=told)
    return dg.Output(None, metadata=told)


def _retain(
    context: dg.OpExecutionContext,
    config: Limits,
    tiers: Tiers,
    known: Trainings,
    store: TrainingStore,
    models: Referred,
) -> dict[str, Any]:
    """Bring one training under its rules; what there is to tell of it."""
    commits, shared = store.commits(), tiers.shared()
    evaluations = {commit.name: found.loss for commit in commits if (found := score_of(store, commit)) is not None}
    plan = decide(store, shared, retention.losses(commits, evaluations), referred(store, tiers, known, models))
    if not config.dry_run:
        retention.carry_out(store.folder, plan)
    if plan.pruned and not config.dry_run:
        known.owe(store.id, checkpoint_arrivals.DUTY)
    patience, removed = Patience(config.damaged_days * 86_400, config.unlisted_hours * 3600), []
    for name, tier in shared.items():
        for folder in condemned(store, name, tier, patience, time.time()):
            removed.append(f"{name}: {folder}")
            if not config.dry_run:
                tier.remove(folder)
    for line in removed:
        context.log.info(f"{'would remove' if config.dry_run else 'removed'} {line}")
    withdrawn = [f"{tier}: {commit.name}" for tier, commit in plan.withdrawn]
    if not withdrawn and not removed:
        return {}
    return {store.id: dg.MetadataValue.json({"withdrawn": withdrawn, "removed": removed, "kept": plan.kept})}


def _clear(context: dg.OpExecutionContext, compute: Compute, tiers: Tiers, over: list[TrainingStore]) -> list[str]:
    """Remove what trainings that are over left on the nodes' NVMe, from each node once; what went wrong.

    Nobody restores from there any more.
    """
    ready = [node.name for node in compute.fleet().nodes() if node.ready]
    waiting: dict[str, list[TrainingStore]] = {}
    for store in over:
        for name in set(ready).difference(store.reports(_cleared(store))):
            waiting.setdefault(name, []).append(store)
    tasks = {
        node: Discard(str(tiers.nvme_path(node)), [store.id for store in stores]) for node, stores in waiting.items()
    }
    failed = []
    for node, done in on_nodes.run(context, compute, tiers, tasks).items():
        if done.failure:
            failed.append(f"{node}: {done.failure}")
            continue
        for store in waiting[node]:
            store.mark_reported(f"{_cleared(store)}{node}")
    return failed


def _cleared(store: TrainingStore) -> str:
    """The mark of the nodes that hold nothing of a training any more, which may have run again since."""
    ended = store.exit()
    return f"cleared-{ended.incarnation if ended else 0:06d}-"


def registered(registry: Registry) -> Referred:
    """The manifests of the checkpoints that are registered as models, with the models' versions."""
    found: Referred = {}
    for version in registry.versions():
        if MANIFEST_TAG in version.tags:
            found.setdefault(version.tags[MANIFEST_TAG], []).append(f"model {version.model}, version {version.number}")
    return found


def referred(store: TrainingStore, tiers: Tiers, known: Trainings, models: Referred) -> Referred:
    """Who refers to a training's commits, by their names."""
    found: Referred = {}
    started_from = dict(_starts(tiers))
    waiting = {commit.name for commit in store.commits("durable") if score_of(store, commit) is None}
    for commit in store.commits():
        reasons = list(models.get(commit.manifest, ()))
        if str(tiers.durable_path / commit.folder) in started_from:
            reasons.append(f"training {started_from[str(tiers.durable_path / commit.folder)]} starts from it")
        if commit.name in waiting and store.id in known.opened(checkpoint_arrivals.DUTY):
            reasons.append("it waits for its evaluation")
        found[commit.name] = reasons
    scored = evaluated(store)
    if scored and store.id in known.opened(promotions.DUTY):
        best, _ = min(reversed(scored), key=lambda pair: pair[1].bits_per_byte)
        found[best.name].append("it is the training's candidate")
    return found


def _starts(tiers: Tiers) -> Iterator[tuple[str, str]]:
    """The folders of checkpoints that trainings start from, with the training."""
    for known in [trainings(tiers), *trials(tiers).values()]:
        for store in map(known.store, known.known()):
            if store.terms().init:
                yield store.terms().init, store.id


@dg.job(description="Removes the checkpoints that no rule keeps and nobody refers to from the durable tier and backup.")
def checkpoint_retention() -> None:
    retain_checkpoints()


schedule = dg.ScheduleDefinition(
    name="checkpoint_retention_hourly",
    cron_schedule=HOURLY,
    job=checkpoint_retention,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each hour.",
)
