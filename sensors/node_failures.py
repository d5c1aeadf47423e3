"""Node failures: a dead node, or no progress past the deadline, leads to a new incarnation on healthy nodes.

This sensor only decides and claims; the job watch stops the old job, confirms that it is gone, submits the next
and shows the incident. It also keeps the partitions of staged shards in line with the fleet.
"""

import dagster as dg

from assets import keys
from resources.compute import Compute, trainings
from resources.fleet.protocol import Node
from resources.launcher.protocol import Unavailable
from resources.tiers import Tiers
from sensors import job_watch

BY = "node failures"


@dg.sensor(
    name="node_failures",
    asset_selection='key:"*/training"',
    minimum_interval_seconds=5,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Gives a training a new incarnation when a node of it died or it makes no progress.",
)
def node_failures(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
    try:
        nodes = compute.fleet().nodes()
    except Unavailable as error:
        return dg.SensorResult(skip_reason=f"the fleet cannot be asked: {error}")
    known, control = trainings(tiers), compute.control(tiers)
    for id in known.opened(job_watch.DUTY):
        store = known.store(id)
        try:
            fault = control.failure(store, nodes)
        except Unavailable as error:
            context.log.warning(f"{id}: the launcher cannot be asked: {error}")
            continue
        if fault and store.wanted:
            control.supersede(store, fault, BY)
    return dg.SensorResult(dynamic_partitions_requests=_node_partitions(context, nodes))


def _node_partitions(
    context: dg.SensorEvaluationContext, nodes: list[Node]
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Nodes that joined get a partition, nodes that left the fleet lose theirs."""
    assert keys.NODES.name is not None
    held = set(context.instance.get_dynamic_partitions(keys.NODES.name))
    names = {node.name for node in nodes}
    requests: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    if names - held:
        requests.append(keys.NODES.build_add_request(sorted(names - held)))
    if held - names:
        requests.append(keys.NODES.build_delete_request(sorted(held - names)))
    return requests
