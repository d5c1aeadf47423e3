"""Queues, which admit a whole job: Kueue suspends it until then, Volcano waits for its PodGroup. Pure."""

from slipway.resources.kubernetes import objects
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import KubernetesObject, Resource
from slipway.resources.launchers.protocol import Job

LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues", operator="Kueue")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "Workload", "workloads", operator="Kueue")
"""Kueue's own objects, one for each workload that is queued or admitted."""
POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", operator="Volcano")
QUEUE = "kueue.x-k8s.io/queue-name"
"""The label of a workload with its LocalQueue."""
QUEUED_JOB = "kueue.x-k8s.io/job-uid"
"""The label of Kueue's object with the workload's uid."""
GROUP = "scheduling.k8s.io/group-name"
"""The annotation of a pod with its PodGroup."""
VOLCANO = "volcano"


def labels(cluster: Cluster) -> dict[str, str]:
    """The labels of the workload for its queue."""
    return {QUEUE: cluster.queue} if cluster.queue else {}


def suspension(cluster: Cluster) -> dict[str, bool]:
    """The field of a workload's spec that Kueue clears. Without it, workloads would bypass the queue while Kueue is
    away."""
    return {"suspend": True} if cluster.queue else {}


def pod_annotations(name: str, cluster: Cluster) -> dict[str, str]:
    """The annotations of the pods for Volcano."""
    return {GROUP: name} if cluster.scheduler == VOLCANO else {}


def pod_groups(metadata: KubernetesObject, job: Job, cluster: Cluster) -> list[KubernetesObject]:
    """The PodGroup: Volcano starts no pod before there is room for the minimum number of pods."""
    if cluster.scheduler != VOLCANO:
        return []
    named = {"priorityClassName": cluster.priority, "queue": cluster.volcano_queue}
    spec = {"minMember": job.least_nodes, **{field: value for field, value in named.items() if value}}
    return [objects.of(POD_GROUPS, metadata, spec)]
