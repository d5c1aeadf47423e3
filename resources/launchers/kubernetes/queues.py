"""Queues, which admit a job as a whole: Kueue holds it suspended, Volcano waits for its PodGroup. Pure."""

from slipway.resources.kubernetes import objects
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import KubernetesObject, Resource
from slipway.resources.launchers.protocol import Job

LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues", operator="Kueue")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "Workload", "workloads", operator="Kueue")
"""Kueue's own objects, one for each workload that waits in a queue or was admitted."""
POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", operator="Volcano")
QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a workload: the LocalQueue in which it waits."""
QUEUED_JOB = "kueue.x-k8s.io/job-uid"
"""Label of Kueue's object for a workload: the workload's uid."""
GROUP = "scheduling.k8s.io/group-name"
"""Annotation of a pod: its PodGroup."""
VOLCANO = "volcano"


def labels(cluster: Cluster) -> dict[str, str]:
    """The labels of the workload."""
    return {QUEUE: cluster.queue} if cluster.queue else {}


def suspension(cluster: Cluster) -> dict[str, bool]:
    """The field of a workload's spec that Kueue clears: without it, workloads pass the queue while Kueue is away."""
    return {"suspend": True} if cluster.queue else {}


def pod_annotations(name: str, cluster: Cluster) -> dict[str, str]:
    """The annotations of the pods."""
    return {GROUP: name} if cluster.scheduler == VOLCANO else {}


def pod_groups(metadata: KubernetesObject, job: Job, cluster: Cluster) -> list[KubernetesObject]:
    """The PodGroup: Volcano starts no pod until there is room for its least number of pods."""
    if cluster.scheduler != VOLCANO:
        return []
    named = {"priorityClassName": cluster.priority, "queue": cluster.volcano_queue}
    spec = {"minMember": job.least_nodes, **{field: value for field, value in named.items() if value}}
    return [objects.of(POD_GROUPS, metadata, spec)]
