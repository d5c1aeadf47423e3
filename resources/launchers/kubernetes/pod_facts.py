"""Pod facts: what the status of one pod of a job means. Pure."""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from slipway.resources.kubernetes.objects import KubernetesObject, time_seconds
from slipway.resources.launchers.kubernetes.pods import DEFAULT_CONTAINER
from slipway.trainer.base.processes import ExitCode

INDEX = "batch.kubernetes.io/job-completion-index"
"""The annotation with the index of a pod in an Indexed Job."""
LOSSES = ("DeletionByTaintManager", "DeletionByPodGC", "NodeShutdown", "NodeLost")
"""The reasons of a disruption that mean that the node was lost, and not only the pod."""

LOST = 255
"""The exit code that containerd reports for a container whose end it did not observe, such as after a node's restart.
No part of Slipway exits with it."""


@dataclass(frozen=True)
class PodFacts:
    """One pod of a job. Times are seconds since the epoch."""

    name: str
    node: str
    """Empty until the pod has a node."""
    index: int = -1
    """Its index in an Indexed Job; -1 if it has none."""
    created: str = ""
    """The creation time as Kubernetes writes it: in UTC and always in the same form, so that texts can be compared."""
    started_at: float | None = None
    exit_code: int | None = None
    exit_reason: str = ""
    """Kubernetes' reason for the exit code: Error, OOMKilled."""
    is_over: bool = False
    """Whether the kubelet has reported that all processes of the pod have ended."""
    must_end_at: float | None = None
    """When the grace period of a deleted pod ends; None for a pod that is not deleted."""
    disruption: str = ""
    """Kubernetes' reason for removing the pod, such as EvictionByEvictionAPI or PreemptionByScheduler."""
    message: str = ""
    """Kubernetes' message about the disruption."""
    waits_for: str = ""
    """What keeps the pod from starting."""

    @property
    def explanation(self) -> str:
        """How the pod ended, for a person; "" for a pod that succeeded or still runs."""
        if self.disruption in LOSSES:
            return f"{self.node} was lost: {self._why}"
        if self.disruption:
            return f"{self.node or self.name}: its pod was evicted: {self._why}"
        if not self.exit_code:
            return ""
        return f"{self.node} ended with exit code {self.exit_code}{_meaning(self.exit_code, self.exit_reason)}"

    @property
    def was_killed(self) -> bool:
        """Whether a signal killed it or its ranks, other than SIGTERM or the signals of its deletion."""
        code = self.exit_code or 0
        killed = (code > 128 and code - 128 != signal.SIGTERM) or code == ExitCode.GIVEN_UP
        return self.must_end_at is None and not self.disruption and killed

    @property
    def _why(self) -> str:
        return f"{self.message} ({self.disruption})" if self.message else self.disruption


def current(pods: Iterable[PodFacts]) -> list[PodFacts]:
    """The pods without replaced ones: the newest pod of each index."""
    by_index = {pod.index if pod.index >= 0 else pod.name: pod for pod in sorted(pods, key=lambda pod: pod.created)}
    return sorted(by_index.values(), key=lambda pod: (pod.index, pod.name))


def of(pod: KubernetesObject) -> PodFacts:
    metadata = pod["metadata"]
    status = pod.get("status", {})
    container = _container(pod)
    ended = container.get("terminated")
    begun = ended or container.get("running") or {}
    disruption, message = _disruption(status, (ended or {}).get("finishedAt", ""))
    return PodFacts(
        name=metadata["name"],
        node=pod["spec"].get("nodeName", ""),
        index=_index(metadata.get("annotations", {}).get(INDEX, "")),
        created=metadata.get("creationTimestamp", ""),
        started_at=time_seconds(begun.get("startedAt")),
        exit_code=ended["exitCode"] if ended else None,
        exit_reason=ended.get("reason", "") if ended else "",
        is_over=status.get("phase") in ("Succeeded", "Failed"),
        must_end_at=time_seconds(metadata.get("deletionTimestamp")),
        disruption=disruption,
        message=message,
        waits_for="" if begun else _wait(pod),
    )


def container_name(pod: KubernetesObject) -> str:
    """The container that runs the job's command."""
    name: str = pod["metadata"].get("annotations", {}).get(DEFAULT_CONTAINER, pod["spec"]["containers"][0]["name"])
    return name


def last_output(pod: KubernetesObject) -> str:
    """The end of a failed container's output, from the pod's status."""
    message: str = _container(pod).get("terminated", {}).get("message", "")
    return message


def _index(text: str) -> int:
    """The index in an annotation; -1 for any other text, since other clients may change annotations."""
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else -1


def _container(pod: KubernetesObject) -> KubernetesObject:
    """The state of the container that runs the job; empty if unknown."""
    name = container_name(pod)
    states = {
        container_status["name"]: container_status.get("state", {})
        for container_status in pod.get("status", {}).get("containerStatuses") or ()
    }
    return states.get(name) or {}


def _disruption(status: KubernetesObject, finished_at: str) -> tuple[str, str]:
    """The reason and the message of a disruption before the pod had finished; ("", "") if there was none."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            if finished_at and condition.get("lastTransitionTime", "") > finished_at:
                return "", ""
            # The kubelet terminates pods for several reasons; the pod's own reason is more precise.
            reason = status.get("reason") if condition.get("reason") == "TerminationByKubelet" else ""
            return reason or condition.get("reason", ""), status.get("message") or condition.get("message", "")
    return status.get("reason", ""), status.get("message", "")


def _wait(pod: KubernetesObject) -> str:
    """Why the pod does not run."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', 'not scheduled')}: {condition.get('message', '')}"
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [container_status.get("state", {}).get("waiting", {}) for container_status in states]
    # These two reasons only mean that the pod is starting.
    reasons = [wait for wait in waiting if wait.get("reason") not in (None, "ContainerCreating", "PodInitializing")]
    return f"{reasons[0]['reason']}: {reasons[0].get('message', '')}" if reasons else ""


def _meaning(code: int, reason: str) -> str:
    if reason == "OOMKilled":
        return " (OOMKilled: it needed more memory than its limit)"
    if code == LOST and reason == "Unknown":
        return " (Unknown: its node or the container runtime there was restarted)"
    return f" ({signal.Signals(code - 128).name})" if code - 128 in set(signal.Signals) else ""
