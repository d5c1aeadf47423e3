"""The spec of a Job with one pod on each node: for an Indexed Job, and inside a JobSet.

A pod that dies under supervisors is replaced, with its index and perhaps on another node, and the others take it back:
the job goes on as it does without a rank that dies. The pods of any other job end together, and none is replaced.
"""

from slipway.resources.kubernetes.objects import CONTAINER, KubernetesObject
from slipway.resources.launchers.kubernetes.pod_facts import LOST
from slipway.resources.launchers.protocol import Job
from slipway.resources.launchers.torchrun import is_supervised
from slipway.trainer.elastic.generations import REPLACED

REPLACEMENTS = 6
"""So many pods of a job that died are replaced, beside those of lost and drained nodes: Kubernetes' own default. Pods
that die again and again are no bad luck, and the control plane counts and chooses."""
REPLACED_SECONDS = 180.0
"""How long a job that needs all its nodes waits for a new pod. Kubernetes makes the first one after 10 s, and each
further one after twice as long (kubernetes.io/docs/concepts/workloads/controllers/job, "Pod backoff failure policy");
the image is there already, or is pulled."""
DIED = (134, 135, 136, 137, 139, 143, LOST)
"""Exit codes of a container that SIGABRT, SIGBUS, SIGFPE, SIGKILL or SIGSEGV has ended, out of memory too; and SIGTERM:
its node left the job, which goes on (`slipway.trainer.elastic.stop_signal`); and of one that ended with its node."""


def spec(job: Job, template: KubernetesObject) -> KubernetesObject:
    """The spec of a batch/v1 Job. Its status says whether a disruption or the job itself ended it."""
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
        # The nodes of a job end together: pods that have no node by then are not needed any more.
        spec["successPolicy"] = {"rules": [{"succeededCount": job.least_nodes}]}
    return spec


def replaces(job: Job) -> bool:
    """Whether pods that die are replaced: others are there to take them back, and know how."""
    return is_supervised(job) and job.node_count > 1


def _replacing() -> list[KubernetesObject]:
    """A pod that was taken away, or that died, comes again; one that ended by itself ends the job.

    No pod comes while the one before it may still run: with rules, a Job replaces pods that have failed, and no others.
    """
    return [
        {"action": "Ignore", "onPodConditions": [_DISRUPTED]},
        {"action": "Count", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": list(DIED)}},
        _FAILED,
    ]


def _ending() -> list[KubernetesObject]:
    """The Job's condition names the first rule that fits: a disruption comes first, whatever the exit code."""
    return [{"action": "FailJob", "onPodConditions": [_DISRUPTED]}, _FAILED]


_DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
_FAILED = {
    "action": "FailJob",
    "onExitCodes": {"containerName": CONTAINER, "operator": "NotIn", "values": [0]},
}
