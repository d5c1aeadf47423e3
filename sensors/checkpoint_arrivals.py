"""Checkpoint arrivals: each new commit becomes a checkpoint in the UI, and is evaluated if it is one of our models.

A commit is shown first and marked as shown when the event log has it, so that no crash loses one. Those that
wait for evaluation share one run, and that run one process. A commit that counts no longer (superseded, found
damaged, or pruned by retention) loses its partition. What lies on the nodes' NVMe alone is not shown.
"""

import dagster as dg

from assets import keys
from assets.checkpoints import checkpoint_materialisation
from assets.evaluation import evaluated
from resources.compute import trainings
from resources.event_log import data_version
from resources.tiers import Tiers
from resources.training_store import TrainingStore
from sensors import runs
from trainer.checkpoint.interval import BACKUP, DURABLE
from trainer.fence import Commit

DUTY = "checkpoints"
EVALUATES_TAG = "slipway/evaluates"


@dg.sensor(
    name="checkpoint_arrivals",
    asset_selection='key:"*/evaluation"',
    minimum_interval_seconds=2,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Shows each new commit as a checkpoint and has it evaluated.",
)
def checkpoint_arrivals(context: dg.SensorEvaluationContext, tiers: Tiers) -> dg.SensorResult:
    known = trainings(tiers)
    result = _Tick()
    for id in known.opened(DUTY):
        store = known.store(id)
        commits = store.commits(DURABLE, BACKUP)
        shown = _show_new(context.instance, store, commits, result)
        withdrawing = _withdraw_gone(context.instance, store, commits, result)
        waiting = _waiting(store, shown)
        if waiting and runs.may_request(context.instance, {EVALUATES_TAG: id}):
            result.requests.append(_evaluation_request(context.instance, store, waiting))
        if _complete(store) and len(shown) == len(commits) and not waiting and not withdrawing:
            known.close(id, DUTY)
    return dg.SensorResult(
        run_requests=result.requests, asset_events=result.events, dynamic_partitions_requests=result.partitions
    )


class _Tick:
    """What one tick gives back."""

    def __init__(self) -> None:
        self.requests: list[dg.RunRequest] = []
        self.events: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = []
        self.partitions: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []


def _show_new(instance: dg.DagsterInstance, store: TrainingStore, commits: list[Commit], tick: _Tick) -> list[Commit]:
    """Show the commits that the event log has not; returns those that it has."""
    shown = []
    for commit in commits:
        if not store.reported(_mark(commit)) and _show(instance, store, commit, tick):
            store.mark_reported(_mark(commit))
        if store.reported(_mark(commit)):
            shown.append(commit)
    return shown


def _show(instance: dg.DagsterInstance, store: TrainingStore, commit: Commit, tick: _Tick) -> bool:
    """Ask for what Dagster lacks of the commit, its event or its partition; True when it lacks neither."""
    recipe, partition = store.specification().recipe, keys.checkpoint_partition(store.id, commit.step)
    partitions = keys.checkpoint_partitions(recipe)
    listed = instance.has_dynamic_partition(partitions.name or "", partition)
    logged = data_version(instance, keys.key(recipe, "checkpoint"), partition) == commit.manifest
    if not listed:
        tick.partitions.append(partitions.build_add_request([partition]))
    if not logged:
        tick.events.append(checkpoint_materialisation(store, commit))
    return listed and logged


def _withdraw_gone(instance: dg.DagsterInstance, store: TrainingStore, commits: list[Commit], tick: _Tick) -> bool:
    """Delete the partitions of shown commits that do not count any more, unless another commit has that step.

    True while Dagster still has one of them.
    """
    withdrawing = False
    valid = {commit.name for commit in commits}
    steps = {commit.step for commit in commits}
    partitions = keys.checkpoint_partitions(store.specification().recipe)
    for name in store.reports("commit-"):
        step = int(name.split(".")[0])
        if name in valid or store.reported(f"withdrawn-{name}"):
            continue
        partition = keys.checkpoint_partition(store.id, step)
        if step not in steps and instance.has_dynamic_partition(partitions.name or "", partition):
            tick.partitions.append(partitions.build_delete_request([partition]))
            withdrawing = True
        else:
            store.mark_reported(f"withdrawn-{name}")
    return withdrawing


def _waiting(store: TrainingStore, shown: list[Commit]) -> list[Commit]:
    """Shown, not evaluated, and on the durable tier, where the evaluation reads it.

    None of a script: it alone knows what its checkpoints hold.
    """
    if store.specification().script:
        return []
    done = {commit.name for commit, _ in evaluated(store)}
    there = {commit.name for commit in store.commits(DURABLE)}
    return [commit for commit in shown if commit.name in there - done]


def _evaluation_request(instance: dg.DagsterInstance, store: TrainingStore, waiting: list[Commit]) -> dg.RunRequest:
    """One run for all that wait. A range goes by the order in which partitions were added, not by step."""
    recipe = store.specification().recipe
    wanted = {keys.checkpoint_partition(store.id, commit.step) for commit in waiting}
    added = [
        key for key in instance.get_dynamic_partitions(keys.checkpoint_partitions(recipe).name or "") if key in wanted
    ]
    return runs.request([keys.key(recipe, "evaluation")], {EVALUATES_TAG: store.id}, added[0], added[-1])


def _complete(store: TrainingStore) -> bool:
    """Whether no further commit can come."""
    ended = store.exit()
    return ended is not None and (ended.outcome == "succeeded" or not store.wanted)


def _mark(commit: Commit) -> str:
    return f"commit-{commit.name}"
