"""The spec of a Job with one pod on each node that restarts nothing: for an Indexed Job, and inside a JobSet."""

from resources.kubernetes.objects import CONTAINER, KubernetesObject
from resources.launchers.protocol import Job


def spec(job: Job, template: KubernetesObject) -> KubernetesObject:
    """The spec of a batch/v1 Job. Its status says whether a disruption or the job itself ended it."""
    spec: KubernetesObject = {
        "backoffLimit": 0,
        "completionMode": "Indexed",
        "completions": job.node_count,
        "parallelism": job.node_count,
        "podFailurePolicy": {"rules": _rules()},
        "template": template,
    }
    if job.least_nodes < job.node_count:
        # The nodes of a job end together: pods that have no node by then are not needed any more.
        spec["successPolicy"] = {"rules": [{"succeededCount": job.least_nodes}]}
    return spec


def _rules() -> list[KubernetesObject]:
    """The Job's condition names the first rule that fits: a disruption comes first, whatever the exit code."""
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    failed = {"containerName": CONTAINER, "operator": "NotIn", "values": [0]}
    return [
        {"action": "FailJob", "onPodConditions": [disrupted]},
        {"action": "FailJob", "onExitCodes": failed},
    ]
