"""Staging: every ready node has the current snapshot of every dataset on its NVMe, or a run that brings it."""

import dagster as dg

from assets import keys
from assets.datasets import snapshot
from recipes.dataset import Dataset
from resources.compute import Compute
from resources.event_log import data_version
from resources.launcher.protocol import Unavailable
from resources.tiers import Tiers
from sensors import runs

STAGES_TAG = "slipway/stages"


def staging(datasets: dict[str, Dataset]) -> dg.SensorDefinition:
    """The sensor over all dataset recipes."""

    @dg.sensor(
        name="staging",
        asset_selection='key:"*/staged_shards"',
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Has the current snapshot of each dataset staged on every ready node.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
        try:
            nodes = [node.name for node in compute.fleet().nodes() if node.ready]
        except Unavailable as error:
            return dg.SensorResult(skip_reason=f"the fleet cannot be asked: {error}")
        assert keys.NODES.name is not None
        known = [node for node in context.instance.get_dynamic_partitions(keys.NODES.name) if node in nodes]
        requests: list[dg.RunRequest] = []
        for name in datasets:
            current = snapshot.current(tiers.durable_path, name)
            if current is not None:
                requests += _requests(context.instance, keys.key(name, "staged_shards"), current, known)
        return dg.SensorResult(run_requests=requests)

    return sensor


def _requests(instance: dg.DagsterInstance, key: dg.AssetKey, current: str, nodes: list[str]) -> list[dg.RunRequest]:
    """A run for each node whose partition is not at the current snapshot."""
    behind = [node for node in nodes if data_version(instance, key, node) != current]
    tags = {node: {STAGES_TAG: f"{current}.{node}"} for node in behind}
    return [runs.request([key], tags[node], node) for node in behind if runs.may_request(instance, tags[node])]
