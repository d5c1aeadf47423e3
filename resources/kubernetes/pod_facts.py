"""What one pod of a job says about itself. Pure."""

import signal
from dataclasses import dataclass

from resources.kubernetes.objects import Object
from resources.kubernetes.pods import DEFAULT_CONTAINER
from resources.kubernetes.workloads import conditions

LOSSES = ("DeletionByTaintManager", "DeletionByPodGC", "NodeShutdown", "NodeLost")
"""Reasons that say that the node went, and not the pod alone."""


@dataclass(frozen=True)
class PodFacts:
    """Times are seconds since the epoch."""

    name: str
    node: str
    """Empty until it has a place."""
    started_at: float | None = None
    exit_code: int | None = None
    exit_reason: str = ""
    """Kubernetes' word for it: Error, OOMKilled."""
    is_over: bool = False
    """Whether the kubelet has said that nothing of it runs any more."""
    doomed_at: float | None = None
    """When the grace of a deleted one is over."""
    disruption: str = ""
    """Why it was taken away, in Kubernetes' word: EvictionByEvictionAPI, PreemptionByScheduler."""
    message: str = ""
    """What Kubernetes says about that."""
    waits: str = ""
    """What keeps it from starting."""

    @property
    def account(self) -> str:
        """How it ended, for a person; empty where that is as it should be."""
        if self.disruption in LOSSES:
            return f"{self.node} was lost: {self._why}"
        if self.disruption:
            return f"{self.node or self.name}: its pod was taken away: {self._why}"
        if not self.exit_code:
            return ""
        return f"{self.node} ended with exit code {self.exit_code}{_meaning(self.exit_code, self.exit_reason)}"

    @property
    def _why(self) -> str:
        return f"{self.message} ({self.disruption})" if self.message else self.disruption


def of(pod: Object) -> PodFacts:
    metadata, status = pod["metadata"], pod.get("status", {})
    container = _container(pod)
    ended = container.get("terminated")
    begun = ended or container.get("running") or {}
    disruption, message = _disruption(status, (ended or {}).get("finishedAt", ""))
    return PodFacts(
        name=metadata["name"],
        node=pod["spec"].get("nodeName", ""),
        started_at=conditions.seconds(begun.get("startedAt")),
        exit_code=ended["exitCode"] if ended else None,
        exit_reason=ended.get("reason", "") if ended else "",
        is_over=status.get("phase") in ("Succeeded", "Failed"),
        doomed_at=conditions.seconds(metadata.get("deletionTimestamp")),
        disruption=disruption,
        message=message,
        waits="" if begun else _wait(pod),
    )


def container_name(pod: Object) -> str:
    """The container that runs the job's command."""
    name: str = pod["metadata"].get("annotations", {}).get(DEFAULT_CONTAINER, pod["spec"]["containers"][0]["name"])
    return name


def last_words(pod: Object) -> str:
    """The end of a failed container's output as the kubelet keeps it with the pod."""
    words: str = _container(pod).get("terminated", {}).get("message", "")
    return words


def _container(pod: Object) -> Object:
    """The state of the container that counts; empty before it has one."""
    name = container_name(pod)
    states = {each["name"]: each.get("state", {}) for each in pod.get("status", {}).get("containerStatuses") or ()}
    return states.get(name) or {}


def _disruption(status: Object, finished_at: str) -> tuple[str, str]:
    """Why the pod was taken away before it had finished, and what is said about it."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            if finished_at and condition.get("lastTransitionTime", "") > finished_at:
                return "", ""
            # The kubelet ends pods for several reasons, and says which beside.
            reason = status.get("reason") if condition.get("reason") == "TerminationByKubelet" else ""
            return reason or condition.get("reason", ""), status.get("message") or condition.get("message", "")
    return status.get("reason", ""), status.get("message", "")


def _wait(pod: Object) -> str:
    """Why it does not run, as its own status has it."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', 'not scheduled')}: {condition.get('message', '')}"
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [each.get("state", {}).get("waiting", {}) for each in states]
    # These two only say that it is on its way.
    told = [each for each in waiting if each.get("reason") not in (None, "ContainerCreating", "PodInitializing")]
    return f"{told[0]['reason']}: {told[0].get('message', '')}" if told else ""


def _meaning(code: int, reason: str) -> str:
    if reason == "OOMKilled":
        return " (OOMKilled: it needed more memory than its limit)"
    return f" ({signal.Signals(code - 128).name})" if code - 128 in set(signal.Signals) else ""
