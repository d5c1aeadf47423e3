"""Node failures: a dead node, a lost place, or no progress past the deadline, leads to a new incarnation elsewhere.

This sensor only decides and claims; the job watch stops the old job, confirms that it is gone, submits the next
and shows the incident. It also keeps the partitions of staged shards in line with the fleet. It cordons nothing: that
is for a person, or the cluster's own health agents, to do.
"""

from collections.abc import Iterator

import dagster as dg

from assets import keys
from recipes.dataset import Dataset
from resources import staged
from resources.compute import Compute, trainings
from resources.event_log import DATA_VERSION_TAG, data_version
from resources.fleet.protocol import Node
from resources.launcher.protocol import Unavailable
from resources.tiers import Tiers
from sensors import job_watch

BY = "node failures"
LOST = "lost"
"""The data version of staged shards whose node died or left: no snapshot has it, so they are staged again."""


def node_failures(datasets: dict[str, Dataset]) -> dg.SensorDefinition:
    """The sensor; it marks the staged shards of all dataset recipes."""
    staged_shards = [keys.key(name, "staged_shards") for name in datasets]

    @dg.sensor(
        name="node_failures",
        asset_selection='key:"*/training"',
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Gives a training a new incarnation when a node of it died or it makes no progress.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
        try:
            nodes = compute.fleet().nodes()
        except Unavailable as error:
            return dg.SensorResult(skip_reason=f"the fleet cannot be asked: {error}")
        _supersede(context, tiers, compute, nodes)
        away = {node.name: node.reason for node in nodes if node.lost}
        away |= dict.fromkeys(_partitions(context) - {node.name for node in nodes}, "it left the fleet")
        for node in away:
            staged.forget(tiers.durable_path, node)
        return dg.SensorResult(
            asset_events=list(_losses(context.instance, staged_shards, away)),
            dynamic_partitions_requests=_node_partitions(context, nodes),
        )

    return sensor


def _supersede(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute, nodes: list[Node]) -> None:
    """Claim the next incarnation of every training whose running one has a fault."""
    known, control = trainings(tiers), compute.control(tiers)
    for id in known.opened(job_watch.DUTY):
        store = known.store(id)
        try:
            fault = control.failure(store, nodes)
            if fault and store.wanted:
                control.supersede(store, fault, BY)
        except Unavailable as error:
            context.log.warning(f"{id}: the launcher or the fleet cannot be asked: {error}")
        except ValueError as error:
            # A folder that cannot be read holds up its own training alone.
            context.log.error(f"{id}: {error}")


def _losses(
    instance: dg.DagsterInstance, staged_shards: list[dg.AssetKey], away: dict[str, str]
) -> Iterator[dg.AssetMaterialization]:
    """The loss of what was staged on these nodes, once: a node that comes back may do so with an empty disk."""
    for key in staged_shards:
        for node, reason in away.items():
            if data_version(instance, key, node) not in (None, LOST):
                yield dg.AssetMaterialization(
                    key,
                    partition=node,
                    description=f"Node {node} is lost: {reason}. It is staged again once the node is back.",
                    metadata={"node": node, "reason": reason},
                    tags={DATA_VERSION_TAG: LOST},
                )


def _partitions(context: dg.SensorEvaluationContext) -> set[str]:
    assert keys.NODES.name is not None
    return set(context.instance.get_dynamic_partitions(keys.NODES.name))


def _node_partitions(
    context: dg.SensorEvaluationContext, nodes: list[Node]
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Nodes that joined get a partition, nodes that left the fleet lose theirs."""
    held, names = _partitions(context), {node.name for node in nodes}
    requests: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    if names - held:
        requests.append(keys.NODES.build_add_request(sorted(names - held)))
    if held - names:
        requests.append(keys.NODES.build_delete_request(sorted(held - names)))
    return requests
