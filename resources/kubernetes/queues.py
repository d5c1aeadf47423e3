"""Who admits a job as a whole: a Kueue queue, which holds it suspended, or Volcano with a PodGroup. Pure."""

from resources.kubernetes import objects
from resources.kubernetes.cluster import Cluster
from resources.kubernetes.objects import Object
from resources.kubernetes.placement import least
from resources.launcher.protocol import Job

QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a workload: the LocalQueue that it waits in."""
QUEUED_JOB = "kueue.x-k8s.io/job-uid"
"""Label of Kueue's object for a workload: the workload's uid."""
GROUP = "scheduling.k8s.io/group-name"
"""Annotation of a pod: its PodGroup."""
VOLCANO = "volcano"


def labels(cluster: Cluster) -> dict[str, str]:
    """Of the workload."""
    return {QUEUE: cluster.queue} if cluster.queue else {}


def suspension(cluster: Cluster) -> dict[str, bool]:
    """The field of a workload's spec that Kueue opens: without its webhook nothing may slip past the queue either."""
    return {"suspend": True} if cluster.queue else {}


def pod_annotations(name: str, cluster: Cluster) -> dict[str, str]:
    """Of the pods."""
    return {GROUP: name} if cluster.scheduler == VOLCANO else {}


def pod_groups(metadata: Object, job: Job, cluster: Cluster) -> list[Object]:
    """The PodGroup without whose least number of pods Volcano starts none."""
    if cluster.scheduler != VOLCANO:
        return []
    spec = {"minMember": least(job), **({"priorityClassName": cluster.priority} if cluster.priority else {})}
    return [objects.of(objects.POD_GROUPS, metadata, spec)]
