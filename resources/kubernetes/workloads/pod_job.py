"""The spec of a Kubernetes Job that runs one pod a node and restarts nothing: of an Indexed Job and within a JobSet."""

from resources.kubernetes.objects import CONTAINER, Object
from resources.kubernetes.placement import least, size
from resources.launcher.protocol import Job


def spec(job: Job, template: Object) -> Object:
    """Of a batch/v1 Job. Kubernetes says whether a disruption or the job itself ended it, and leaves the rest to us."""
    spec: Object = {
        "backoffLimit": 0,
        "completionMode": "Indexed",
        "completions": size(job),
        "parallelism": size(job),
        "podFailurePolicy": {"rules": _rules()},
        "template": template,
    }
    if least(job) < size(job):
        # The nodes of a job end together: those that found no place until then are not needed any more.
        spec["successPolicy"] = {"rules": [{"succeededCount": least(job)}]}
    return spec


def _rules() -> list[Object]:
    """The first that fits is what the Job's condition names: a disruption, with whatever exit code, is no error."""
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    failed = {"containerName": CONTAINER, "operator": "NotIn", "values": [0]}
    return [
        {"action": "FailJob", "onPodConditions": [disrupted]},
        {"action": "FailJob", "onExitCodes": failed},
    ]
