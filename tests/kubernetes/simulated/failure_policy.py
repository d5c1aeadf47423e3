"""A Job's podFailurePolicy (k8s.io/kubernetes/pkg/controller/job/pod_failure_policy.go)."""

from tests.kubernetes.simulated.kinds import Object


def fail_job(job: Object, failed: list[Object]) -> str:
    """Why a failed pod ends the Job at once, for its condition; empty when none does."""
    for pod in failed:
        action, message = _matched(job, pod)
        if action == "FailJob":
            return message
    return ""


def counts(job: Object, pod: Object) -> bool:
    """Whether a failed pod counts towards the backoffLimit."""
    return _matched(job, pod)[0] != "Ignore"


def _matched(job: Object, pod: Object) -> tuple[str, str]:
    """Action and message of the first rule that fits; both empty when none does."""
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for index, rule in enumerate(job["spec"].get("podFailurePolicy", {}).get("rules", ())):
        why = _exit(pod, name, rule["onExitCodes"]) if "onExitCodes" in rule else ""
        why = why or _condition(pod, name, rule.get("onPodConditions") or [])
        if why:
            return rule["action"], f"{why} matching {rule['action']} rule at index {index}"
    return "", ""


def _exit(pod: Object, name: str, requirement: Object) -> str:
    status = pod["status"]
    for container in [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]:
        code = container["state"].get("terminated", {}).get("exitCode", 0)
        of_it = requirement.get("containerName") in (None, container["name"])
        if code and of_it and (code in requirement["values"]) == (requirement["operator"] == "In"):
            return f"Container {container['name']} for pod {name} failed with exit code {code}"
    return ""


def _condition(pod: Object, name: str, patterns: list[Object]) -> str:
    for condition in pod["status"].get("conditions") or ():
        for pattern in patterns:
            if (condition["type"], condition["status"]) == (pattern["type"], pattern.get("status", "True")):
                return f"Pod {name} has condition {condition['type']}"
    return ""
