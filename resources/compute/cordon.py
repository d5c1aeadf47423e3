"""The cordon of the cluster that the platform's settings describe."""

from slipway.resources.fleet.kubernetes.cordon import Cordon
from slipway.resources.kubernetes.client import Client
from slipway.resources.platform import Platform
from slipway.resources.tiers import Tiers


def of_platform(settings: Platform) -> Cordon:
    """The cordon for the nodes of the fleet in `settings`."""
    compute = settings.compute
    client = Client(compute.kubeconfig, compute.context)
    return Cordon(client, dict(compute.cluster.node_selector), Tiers(**settings.tiers.model_dump()).durable_path)
