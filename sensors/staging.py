"""Staging: brings the current snapshot of a dataset to the ready nodes where a wanted training may read it.

Should be: where a wanted training reads the whole of the current snapshot, each ready node that it may get has that on
its NVMe. What its nodes hold in parts or in a window, and older snapshots, the training's own ranks bring.
Is: the data version of the node's partition of staged shards.
Follows: a run for each such node whose partition is not at the current snapshot.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from slipway.assets import keys, subjects
from slipway.assets.datasets.snapshots import pointer
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources.compute.protocol import Compute
from slipway.resources.event_log import data_versions
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import TrainingStore, WorkQueue, all_trainings, all_trials
from slipway.sensors.support.runs import NewestRuns
from slipway.sensors.support.tick import Tick

NAME = "staging"
STAGES_TAG = "slipway/stages"


def staging(datasets: dict[str, DatasetRecipe]) -> dg.SensorDefinition:
    """The sensor over all dataset recipes."""

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/staged_shards"',
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Has the current snapshot of each dataset staged where wanted trainings will read it.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
        tick = Tick(context, NAME)
        nodes = list[str]()
        tick.visit(subjects.FLEET, lambda: nodes.extend(_ready_nodes(tick.instance, compute)))
        demands = list[StagingDemand]()
        tick.visit(subjects.FLEET, lambda: demands.extend(_staging_demands(tiers)))
        tick.for_each(datasets, subjects.dataset, lambda name: _stage(tick, name, tiers, nodes, demands))
        return tick.result()

    return sensor


def _ready_nodes(instance: dg.DagsterInstance, compute: Compute) -> list[str]:
    """The ready nodes that have a partition. Raises Unavailable."""
    assert keys.NODES.name is not None
    ready = {node.name for node in compute.fleet().nodes() if node.ready}
    return [node for node in instance.get_dynamic_partitions(keys.NODES.name) if node in ready]


@dataclass(frozen=True)
class StagingDemand:
    """That a training should run which reads the whole of a snapshot on its nodes."""

    snapshot: str
    nodes: frozenset[str]
    """The nodes that it may get; empty before it was first given any: it may get each."""


def _staging_demands(tiers: Tiers) -> Iterator[StagingDemand]:
    """The trainings and trials that should run and have not ended. One that cannot be read the job watch reports."""
    for all_of_one_root in (all_trainings(tiers), *all_trials(tiers).values()):
        for id in all_of_one_root.pending(WorkQueue.RUN):
            with contextlib.suppress(ValueError, OSError):
                if (demand := _of(all_of_one_root.store(id))) is not None:
                    yield demand


def _of(store: TrainingStore) -> StagingDemand | None:
    desired = store.desired()
    if desired is None or desired.want != "run" or store.exit() is not None:
        return None
    if store.run_policy().staging in ("parts", "window"):
        return None
    claim = store.newest_claim()
    return StagingDemand(store.specification().snapshot, frozenset(claim.nodes if claim else ()))


def _stage(tick: Tick, dataset: str, tiers: Tiers, ready: list[str], demands: list[StagingDemand]) -> None:
    """Request a run for each of the ready nodes that is to have the dataset's current snapshot and has not."""
    key = keys.key(dataset, "staged_shards")
    current = pointer.current(tiers.durable_path, dataset)
    readers = [one for one in demands if one.snapshot == current]
    nodes = [node for node in ready if any(not one.nodes or node in one.nodes for one in readers)]
    if current is None or not nodes:
        return
    versions = data_versions(tick.instance, key, nodes)
    behind = {node: f"{current}.{node}" for node in nodes if versions.get(node) != current}
    staged_by = NewestRuns(tick.instance, STAGES_TAG, behind.values())
    for node, value in behind.items():
        if staged_by.may_request(value):
            tick.request([key], {STAGES_TAG: value}, node)
