"""Node demand: placeholder pods that show a cluster autoscaler how many nodes a training waits for.

A training is claimed only on existing nodes. Until it has enough of them, it has no pods in the cluster, so an
autoscaler, which adds nodes for pods that fit nowhere, would never add one. The placeholders request the resources of
the training's pods, one per node, and do nothing. They are removed once the training has its nodes; if that happens
late, the training's pods pre-empt them. The state is in the Jobs, so any process can adjust them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from slipway.resources.kubernetes import objects
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import JOBS, NAME, KubernetesObject
from slipway.resources.launchers.kubernetes import names, placement, pods
from slipway.resources.launchers.kubernetes.node_shortage import Lack

DEMAND = "slipway/demand"
"""The label of placeholders with their training."""
KIND = "slipway/kind"
"""The label of all these Jobs."""
NODES = "nodes"
"""The value of that label."""
TRIES = 1_000_000
"""The back-off limit: pre-empted placeholders are created again for as long as nodes are missing."""


@dataclass(frozen=True)
class NodeDemand:
    """The placeholders of one platform."""

    client: Client
    cluster: Cluster

    def bring_to(self, lacks: Mapping[str, Lack], unknown: Collection[str] = ()) -> None:
        """Create placeholders for these trainings and delete all others, except those of `unknown` trainings.

        Raises Unavailable, and ValueError for a recipe section that does not fit the cluster.
        """
        there = {
            placeholder["metadata"]["annotations"][NAME]: placeholder
            for placeholder in self.client.list(JOBS, {KIND: NODES})
        }
        for training, placeholder in list(there.items()):
            required = lacks.get(training)
            if training not in unknown and (required is None or required.nodes != placeholder["spec"]["parallelism"]):
                self.client.delete(JOBS, placeholder["metadata"]["name"], placeholder["metadata"]["uid"])
                del there[training]
        for training, lack in lacks.items():
            if training not in there:
                self.client.create(JOBS, job(training, lack, self.cluster.with_recipe(lack.kubernetes)))


def job(training: str, lack: Lack, cluster: Cluster) -> KubernetesObject:
    """The placeholders of one training."""
    name = names.object_name(f"demand-{training}")
    labels = {KIND: NODES, DEMAND: names.label_value(training)}
    spec = {
        "parallelism": lack.nodes,
        "completions": lack.nodes,
        "backoffLimit": TRIES,
        "template": {"metadata": {"labels": labels}, "spec": _pod(labels, cluster)},
    }
    return objects.of(JOBS, {"name": name, "labels": labels, "annotations": {NAME: training}}, spec)


def _pod(labels: Mapping[str, str], cluster: Cluster) -> KubernetesObject:
    one_a_node = {"labelSelector": {"matchLabels": {DEMAND: labels[DEMAND]}}, "topologyKey": placement.HOST}
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [one_a_node]}},
        "automountServiceAccountToken": False,
        "containers": [_container(cluster)],
        "enableServiceLinks": False,
        "nodeSelector": dict(cluster.node_selector),
        "priorityClassName": cluster.demand_priority,
        "restartPolicy": "Never",
        "securityContext": pods.identity(cluster.user),
        "serviceAccountName": cluster.service_account,
        "terminationGracePeriodSeconds": 0,
        "tolerations": placement.tolerations(cluster),
    }


def _container(cluster: Cluster) -> KubernetesObject:
    """A container of the trainer's image, so that a new node has pulled the image when the training starts."""
    return {
        "name": "placeholder",
        "image": cluster.image,
        "imagePullPolicy": cluster.pull_policy,
        "command": ["sleep", "infinity"],
        "resources": {"requests": cluster.requested, "limits": dict(cluster.resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
