"""Checkpoint retention: each hour, removes what no rule keeps and nothing refers to from the tiers that nodes share.

A registered model, a training that starts from it, a replay that reads it, an evaluation that has not been done and a
judgement that is due refer to a checkpoint. Where a record or a reference cannot be read, nothing is removed: of that
training, or, as its references may be to any, of all. The sensor that showed a checkpoint deletes its partition.

Before it removes anything of a training that is over, it copies what the backup could not take while the training ran.
"""

import time
from typing import Any

import dagster as dg
from pydantic import Field

from slipway.assets.execution import on_nodes, pods
from slipway.assets.promotion.evaluation import best, evaluated, score_of
from slipway.operations import references
from slipway.operations.references import Reasons, ReferenceReader, References
from slipway.resources.compute.protocol import Compute
from slipway.resources.mlflow.registry import Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.branching import let_go_if_abandoned
from slipway.resources.trainings.checkpoints import Patience, condemned, decide_removals, deliver_copy, pending_copy
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import Trainings, TrainingStore, WorkQueue
from slipway.trainer.base import paths, quantities
from slipway.trainer.base.units import DAY, HOUR
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.retention import holds, rules
from slipway.trainer.checkpoint.retention.removal import Records, Remover
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, TierUnavailable
from slipway.trainer.node_task import DiscardTask


class CheckpointLimits(dg.Config):
    """How long what does not count stays."""

    damaged_days: float = Field(default=30.0, ge=0, description="A copy that was found damaged")
    unlisted_hours: float = Field(default=24.0, ge=0, description="A checkpoint that is on no record")
    dry_run: bool = Field(default=False, description="Remove nothing, and list what would go")


@dg.op(
    description="Removes the checkpoints that no rule of their training keeps and nothing refers to.",
    tags=pods.tags("checkpoint_retention"),
)
def retain_checkpoints(
    context: dg.OpExecutionContext, config: CheckpointLimits, tiers: Tiers, tracking: Tracking, compute: Compute
) -> dg.Output[None]:
    """One training after the other. Raises what the registry raises when it is away: its references are not known.

    Raises OSError and ValueError too, before anything is removed, where the terms of any training cannot be read.
    """
    retention = _Retention(context, config, tiers, Registry(tracking, tiers.durable_path))
    removed: dict[str, Any] = {}
    failed: list[str] = []
    over: list[TrainingStore] = []
    for root in references.training_collections(tiers):
        for store in references.stores(root):
            try:
                if not config.dry_run and let_go_if_abandoned(root, store.read(), time.time()):
                    context.log.info(f"{store.id}: it never saved anything, and holds its parent's checkpoint no more")
                if not config.dry_run:
                    retention.deliver(root, store)
                removed |= retention.retain(root, store)
                if store.read().over:
                    over.append(store)
            except (TierUnavailable, OSError, ValueError) as error:
                failed.append(f"{store.id}: nothing was removed: {error}")
    if not config.dry_run:
        failed += _clear(context, compute, tiers, over)
    if failed:
        raise dg.Failure("; ".join(failed), metadata=removed)
    return dg.Output(None, metadata=removed)


class _Retention:
    """One run of the retention."""

    def __init__(
        self, context: dg.OpExecutionContext, config: CheckpointLimits, tiers: Tiers, registry: Registry
    ) -> None:
        self._context = context
        self._config = config
        self._shared = tiers.shared()
        self._durable = tiers.durable_path
        self._references = ReferenceReader(tiers, registry)
        self._known = self._references.read()

    def retain(self, root: Trainings, store: TrainingStore) -> dict[str, Any]:
        """Bring one training under its rules; what was removed of it, as metadata. Raises as `Remover.remove` does."""
        folders_by_tier, away = self._folders(store)
        facts = store.read()
        if not facts.commits and not any(folders_by_tier.values()):
            return {}
        Records.read(store.folder)
        facts = store.read()
        plan = self._plan(root, facts)
        if not self._config.dry_run and (plan.withdrawn or plan.pruned):
            # Anew, as another training may start from one meanwhile.
            self._known = self._references.read()
            plan = self._plan(root, facts)
            rules.record_removals(facts.folder, plan)
            facts = store.read()
            root.open(facts.id, WorkQueue.CHECKPOINTS)
        removed = [line for name, folders in folders_by_tier.items() for line in self._remove(facts, name, folders)]
        if away:
            raise TierUnavailable("; ".join(away))
        withdrawn = [f"{tier}: {commit.name}" for tier, commit in plan.withdrawn]
        if not withdrawn and not removed:
            return {}
        return {facts.id: dg.MetadataValue.json({"withdrawn": withdrawn, "removed": removed, "kept": plan.retained})}

    def deliver(self, root: Trainings, store: TrainingStore) -> None:
        """Copy the last checkpoint of a training that is over to the backup, if it did not take it. Raises OSError.

        What does not succeed is said, and tried again by the next run.
        """
        facts = store.read()
        backup = self._shared.get(BACKUP)
        if backup is None or (commit := pending_copy(facts)) is None:
            return
        try:
            size = deliver_copy(store.folder, commit, self._durable, backup)
        except (DamagedCheckpoint, TierUnavailable, OSError) as error:
            self._context.log.warning(f"{facts.id}: {commit.name} is not on the backup yet: {error}")
            return
        root.open(facts.id, WorkQueue.CHECKPOINTS)
        self._context.log.info(f"{facts.id}: {commit.name}: copied to the backup, {quantities.bytes_in_words(size)}")

    def _folders(self, store: TrainingStore) -> tuple[dict[str, dict[str, float]], list[str]]:
        """By tier, the training's folders there with their times; and why a tier cannot be listed."""
        folders_by_tier = dict[str, dict[str, float]]()
        away = list[str]()
        for name, tier in self._shared.items():
            try:
                folders_by_tier[name] = tier.folders(paths.checkpoints(store.id))
            except TierUnavailable as error:
                away.append(str(error))
        return folders_by_tier, away

    def _plan(self, root: Trainings, facts: TrainingFacts) -> rules.RemovalPlan:
        losses = {commit.name: score.loss for commit in facts.commits if (score := score_of(facts, commit)) is not None}
        referred = reasons_to_stay(facts, root, self._known)
        return decide_removals(facts, self._shared, rules.validation_losses(facts.commits, losses), referred)

    def _remove(self, facts: TrainingFacts, name: str, folders: dict[str, float]) -> list[str]:
        """Remove what is to go from one tier; returns a line for each."""
        patience = Patience(self._config.damaged_days * DAY, self._config.unlisted_hours * HOUR)
        going = condemned(facts, name, folders, patience, time.time())
        if going and not self._config.dry_run:
            self._known = self._references.read()
        remover = Remover(facts.folder, name, self._shared[name], self._known)
        lines = []
        for folder in going:
            why = remover.why_it_stays(folder) if self._config.dry_run else remover.remove(folder)
            self._context.log.info(f"{name}: {folder}: {f'stays: {why}' if why else self._verb}")
            lines += [] if why else [f"{name}: {folder}"]
        return lines

    @property
    def _verb(self) -> str:
        return "would be removed" if self._config.dry_run else "removed"


def _clear(context: dg.OpExecutionContext, compute: Compute, tiers: Tiers, over: list[TrainingStore]) -> list[str]:
    """Clear the nodes' NVMe of trainings that are over, each node once; returns what went wrong.

    A node that keeps a checkpoint is asked again by the next run.
    """
    ready = [node.name for node in compute.fleet().nodes() if node.ready]
    waiting: dict[str, dict[str, tuple[TrainingStore, str]]] = {}
    for store in over:
        facts = store.read()
        for node in ready if facts.over else ():
            if (mark := _cleared(facts, node)) not in facts.reported:
                waiting.setdefault(node, {})[store.id] = (store, mark)
    tasks = {
        node: DiscardTask(
            str(tiers.nvme_path(node)), str(tiers.durable_path), [str(store.folder) for store, _ in stores.values()]
        )
        for node, stores in waiting.items()
    }
    failed = []
    for node, done in on_nodes.run(context, compute, tiers, tasks).items():
        if done.failure:
            failed.append(f"{node}: {done.failure}")
            continue
        failed += [f"{node}: {id}: {fault}" for id, fault in done.result["faults"].items()]
        for id, cleared in done.result["cleared"].items():
            for name in (*cleared["copied"], *cleared["removed"]):
                context.log.info(f"{node}: {id}: {name}: {'copied' if name in cleared['copied'] else 'removed'}")
            store, mark = waiting[node][id]
            if cleared["copied"]:
                Trainings(store.folder.parent).open(id, WorkQueue.CHECKPOINTS)
            if not cleared["retained"]:
                store.mark_reported(mark)
    return failed


def _cleared(facts: TrainingFacts, node: str) -> str:
    """The mark that a node holds nothing of a training any more, up to the newest incarnation: it may run again."""
    return f"cleared-{facts.incarnation:06d}-{node}"


def reasons_to_stay(facts: TrainingFacts, root: Trainings, known: References) -> Reasons:
    """What refers to a training's commits, by their names."""
    scored = evaluated(facts)
    evaluating = root.is_open(facts.id, WorkQueue.CHECKPOINTS)
    waiting = {commit.name for commit in facts.commits_on(DURABLE)} - {commit.name for commit, _ in scored}
    reasons = {commit.name: known(commit.folder, commit.manifest) for commit in facts.commits}
    for commit in facts.commits:
        reasons[commit.name] += holds.reasons(facts.folder, commit.name, time.time())
        if commit.name in waiting and evaluating:
            reasons[commit.name].append("it waits for its evaluation")
    candidate = best(facts)
    if candidate is not None and root.is_open(facts.id, WorkQueue.PROMOTION):
        reasons[candidate[0].name].append("it is the training's candidate")
    return reasons


@dg.job(
    name="checkpoint_retention",
    description="Removes from the durable tier and the backup what no rule keeps and nothing refers to.",
)
def job() -> None:
    retain_checkpoints()


schedule = dg.ScheduleDefinition(
    name="checkpoint_retention_hourly",
    cron_schedule="17 * * * *",
    job=job,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each hour.",
)
