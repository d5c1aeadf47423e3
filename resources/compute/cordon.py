"""The cordon of a cluster, as the platform's settings describe the cluster."""

from slipway.resources.fleet.kubernetes.cordon import Cordon
from slipway.resources.kubernetes.client import Client
from slipway.resources.platform import Platform
from slipway.resources.tiers import Tiers


def of_platform(settings: Platform) -> Cordon:
    """What cordons the nodes of the fleet that `settings` describe."""
    compute = settings.compute
    client = Client(compute.kubeconfig, compute.context)
    return Cordon(client, dict(compute.cluster.node_selector), Tiers(**settings.tiers.model_dump()).durable_path)
