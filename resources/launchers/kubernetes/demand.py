"""Node demand: pending pods that show a cluster autoscaler how many nodes a training waits for.

A training is claimed on nodes that are there, so that before it has enough of them nothing of it is in the cluster, and
an autoscaler, which adds nodes for pods that fit nowhere, would never add one. The placeholders ask for what the
training's pods will ask for, one on a node, and do nothing. They are removed once the training has its nodes; where
that is late, its pods take their place by priority. The state is in the Jobs: any process brings them to what is
lacking.
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
"""Label of the placeholders: the training, as a label's value."""
KIND, NODES = "slipway/kind", "nodes"
"""Label of all these Jobs, and its value."""
TRIES = 1_000_000
"""Placeholders that were pre-empted are made again for as long as nodes are lacking."""


@dataclass(frozen=True)
class NodeDemand:
    """The placeholders of one platform."""

    client: Client
    cluster: Cluster

    def bring_to(self, lacks: Mapping[str, Lack], unknown: Collection[str] = ()) -> None:
        """Have placeholders for these trainings and for no others; those of `unknown` stay as they are.

        Raises Unavailable, and ValueError for a section that does not fit the cluster's.
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
    """A new node pulls the trainer's image for it, which the training then finds there."""
    return {
        "name": "placeholder",
        "image": cluster.image,
        "imagePullPolicy": cluster.pull_policy,
        "command": ["sleep", "infinity"],
        "resources": {"requests": cluster.requested, "limits": dict(cluster.resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
