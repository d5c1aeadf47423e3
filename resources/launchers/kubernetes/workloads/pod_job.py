"""The spec of a Job with one pod per node, for an Indexed Job and inside a JobSet.

In a job of supervisors, Kubernetes replaces a dead pod with the same index, perhaps on another node, and the other
supervisors take it back. The pods of any other job end together, and none is replaced.
"""

from slipway.resources.kubernetes.objects import CONTAINER, KubernetesObject
from slipway.resources.launchers.kubernetes.pod_facts import LOST
from slipway.resources.launchers.protocol import Job
from slipway.resources.launchers.torchrun import is_supervised
from slipway.trainer.elastic.generations import REPLACED

REPLACEMENTS = 6
"""How many dead pods of a job are replaced, in addition to pods of lost and drained nodes; Kubernetes' own default.
After more failures, the control plane decides, which counts them and can choose other nodes."""
REPLACED_SECONDS = 180.0
"""How long a job that needs all its nodes waits for a new pod. Kubernetes creates the first one after 10 s, and each
further one after twice as long (kubernetes.io/docs/concepts/workloads/controllers/job, "Pod backoff failure policy");
pulling the image may take longer."""
DIED = (134, 135, 136, 137, 139, 143, LOST)
"""The exit codes after which a pod is replaced: SIGABRT, SIGBUS, SIGFPE, SIGKILL (also out of memory) and SIGSEGV;
SIGTERM, with which a node leaves a job that goes on (`slipway.trainer.elastic.stop_signal`); and the loss of the node.
"""


def spec(job: Job, template: KubernetesObject) -> KubernetesObject:
    """The spec of a batch/v1 Job. Its status shows whether a disruption or the job itself ended it."""
    spec: KubernetesObject = {
        "backoffLimit": REPLACEMENTS if replaces(job) else 0,
        "completionMode": "Indexed",
        "completions": job.node_count,
        "parallelism": job.node_count,
        "podFailurePolicy": {"rules": _replacing() if replaces(job) else _ending()},
        "template": template,
    }
    if replaces(job):
        for container in template["spec"]["containers"]:
            if container["name"] == CONTAINER:
                container["env"].append({"name": REPLACED, "value": f"{REPLACED_SECONDS:.0f}"})
    if job.least_nodes < job.node_count:
        # The nodes of a job end together, so pods that still have no node by then are not needed.
        spec["successPolicy"] = {"rules": [{"succeededCount": job.least_nodes}]}
    return spec


def replaces(job: Job) -> bool:
    """Whether dead pods are replaced: only if other supervisors can take them back."""
    return is_supervised(job) and job.node_count > 1


def _replacing() -> list[KubernetesObject]:
    """The rules with which an evicted or dead pod is replaced, and a pod that exits by itself ends the job.

    With such rules, a Job replaces only pods that have failed, so that no two pods of an index run at the same time.
    """
    return [
        {"action": "Ignore", "onPodConditions": [_DISRUPTED]},
        {"action": "Count", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": list(DIED)}},
        _FAILED,
    ]


def _ending() -> list[KubernetesObject]:
    """The rules with which any failure ends the job. The Job's condition names the first matching rule, so the rule for
    disruptions comes first."""
    return [{"action": "FailJob", "onPodConditions": [_DISRUPTED]}, _FAILED]


_DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
_FAILED = {
    "action": "FailJob",
    "onExitCodes": {"containerName": CONTAINER, "operator": "NotIn", "values": [0]},
}
