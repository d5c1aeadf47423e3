"""Placement: where the pods of a job may run, which nodes they prefer, and which taints they tolerate. Pure."""

from collections.abc import Sequence
from typing import Any

from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import JOB, KubernetesObject
from slipway.resources.launchers.protocol import Job

HOST = "kubernetes.io/hostname"
"""The label with a node's name, by which a job places at most one pod on each node."""
KUEUE_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"
"""The annotation of a pod template with which Kueue chooses nodes that are close together."""
STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations that keep an autoscaler from removing the pod's node when it scales down or consolidates."""
HOLDS_ITS_DATA = 100
CLOSE_TOGETHER = 50
"""Weights of preferences. Staging all shards again costs more than one more network hop between nodes."""


def of(name: str, job: Job, cluster: Cluster) -> KubernetesObject:
    """The fields of the pod spec that place the pods."""
    apart = job.node_count > 1 and bool(cluster.topology) and cluster.spread == "spread"
    fields = {
        "affinity": _affinity(name, job, cluster),
        "nodeSelector": dict(cluster.node_selector),
        "priorityClassName": cluster.priority,
        "schedulerName": cluster.scheduler,
        "tolerations": tolerations(cluster),
        "topologySpreadConstraints": [_spread(name, cluster.topology)] if apart else [],
    }
    return {field: value for field, value in fields.items() if value}


def annotations(cluster: Cluster) -> dict[str, str]:
    """The annotations of the pods for a queue that chooses the nodes."""
    is_packed = cluster.queue and cluster.topology and cluster.spread == "pack"
    return {KUEUE_TOPOLOGY: cluster.topology} if is_packed else {}


def _affinity(name: str, job: Job, cluster: Cluster) -> KubernetesObject:
    nodes: KubernetesObject = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_among(job.nodes)]}
    }
    if job.prefer:
        preferred = {"weight": HOLDS_ITS_DATA, "preference": _among(job.prefer)}
        nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [preferred]
    affinity = {"nodeAffinity": nodes}
    if job.node_count > 1:
        one_a_node = {**_pods_of(name), "topologyKey": HOST}
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [one_a_node]}
    if job.node_count > 1 and cluster.topology and cluster.spread == "pack" and not annotations(cluster):
        close = {"weight": CLOSE_TOGETHER, "podAffinityTerm": {**_pods_of(name), "topologyKey": cluster.topology}}
        affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [close]}
    return affinity


def _among(nodes: Sequence[str]) -> KubernetesObject:
    return {"matchExpressions": [{"key": HOST, "operator": "In", "values": list(nodes)}]}


def _pods_of(name: str) -> KubernetesObject:
    return {"labelSelector": {"matchLabels": {JOB: name}}}


def _spread(name: str, topology: str) -> KubernetesObject:
    return {"maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": "ScheduleAnyway", **_pods_of(name)}


def tolerations(cluster: Cluster) -> list[Any]:
    """The taints that the pods of a job tolerate; those of an unreachable node only for a limited time."""
    gone = [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": cluster.unreachable_seconds,
        }
        for condition in ("not-ready", "unreachable")
    ]
    spot = cluster.spot_tolerations if cluster.spot else ()
    return [dict(taint) for taint in (*cluster.tolerations, *spot, *gone)]
