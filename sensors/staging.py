"""Staging: brings the current snapshot of every dataset to every ready node.

Should be: each ready node has the current snapshot of each dataset on its NVMe.
Is: the data version of the node's partition of staged shards.
Follows: a run for each node whose partition is not at the current snapshot.
"""

import dagster as dg

from assets import keys, subjects
from assets.datasets.snapshots import pointer
from recipes.dataset import DatasetRecipe
from resources.compute.protocol import Compute
from resources.event_log import data_versions
from resources.tiers import Tiers
from sensors.support.runs import NewestRuns
from sensors.support.tick import Tick

NAME = "staging"
STAGES_TAG = "slipway/stages"


def staging(datasets: dict[str, DatasetRecipe]) -> dg.SensorDefinition:
    """The sensor over all dataset recipes."""

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/staged_shards"',
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Has the current snapshot of each dataset staged on every ready node.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
        tick, nodes = Tick(context, NAME), list[str]()
        tick.visit(subjects.FLEET, lambda: nodes.extend(_ready_nodes(tick.instance, compute)))
        tick.each(datasets, subjects.dataset, lambda name: _stage(tick, name, tiers, nodes))
        return tick.result()

    return sensor


def _ready_nodes(instance: dg.DagsterInstance, compute: Compute) -> list[str]:
    """The ready nodes that have a partition. Raises Unavailable."""
    assert keys.NODES.name is not None
    ready = {node.name for node in compute.fleet().nodes() if node.ready}
    return [node for node in instance.get_dynamic_partitions(keys.NODES.name) if node in ready]


def _stage(tick: Tick, dataset: str, tiers: Tiers, nodes: list[str]) -> None:
    """Request a run for each of the nodes that does not have the dataset's current snapshot."""
    key, current = keys.key(dataset, "staged_shards"), pointer.current(tiers.durable_path, dataset)
    if current is None or not nodes:
        return
    held = data_versions(tick.instance, key, nodes)
    behind = {node: f"{current}.{node}" for node in nodes if held.get(node) != current}
    staged_by = NewestRuns(tick.instance, STAGES_TAG, behind.values())
    for node, value in behind.items():
        if staged_by.may_request(value):
            tick.request([key], {STAGES_TAG: value}, node)
