"""The status of a pod as its kubelet writes it (k8s.io/kubernetes/pkg/kubelet/kubelet_pods.go)."""

from dataclasses import dataclass, field

from tests.kubernetes.simulated import clock, pods
from tests.kubernetes.simulated.dns import HOME
from tests.kubernetes.simulated.kinds import Object


@dataclass
class ContainerStatus:
    """One container, at any moment in exactly one state."""

    name: str
    image: str
    state: Object
    restarts: int = 0
    last: Object = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        terminated = self.state.get("terminated")
        return int(terminated["exitCode"]) if terminated else None

    def as_json(self) -> Object:
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "" if "waiting" in self.state else f"{self.image}@sha256:{'0' * 64}",
            "ready": self.is_running or self.exit_code == 0,
            "started": self.is_running,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }


def waiting(reason: str, message: str = "") -> Object:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def running() -> Object:
    return {"running": {"startedAt": clock.now()}}


def terminated(code: int, reason: str, message: str = "", started: str = "") -> Object:
    ended = {"exitCode": code, "reason": reason, "startedAt": started or clock.now(), "finishedAt": clock.now()}
    return {"terminated": {**ended, **({"message": message} if message else {})}}


def phase(init: list[ContainerStatus], main: list[ContainerStatus], is_over: bool) -> str:
    """Pending until every init container has succeeded and one container has started; then until all have ended."""
    codes = [status.exit_code for status in [*init, *main]]
    if is_over:
        return "Succeeded" if all(code == 0 for code in codes) else "Failed"
    return "Running" if any(status.is_running or status.exit_code is not None for status in main) else "Pending"


def write(pod: Object, init: list[ContainerStatus], main: list[ContainerStatus], phase: str, since: str) -> None:
    """Write the kubelet's part of the pod's status; other parts stay."""
    status = pod["status"]
    status |= {"phase": phase, "hostIP": HOME, "podIP": HOME, "startTime": since}
    status["containerStatuses"] = [container_status.as_json() for container_status in main]
    if init:
        status["initContainerStatuses"] = [container_status.as_json() for container_status in init]
    is_over = phase in ("Succeeded", "Failed")
    reason = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")
    names = " ".join(container_status.name for container_status in main if not container_status.is_running)
    ready = (
        not is_over
        and all(container_status.is_running for container_status in main)
        and "deletionTimestamp" not in pod["metadata"]
    )
    why = (
        (reason, "")
        if is_over
        else ()
        if ready
        else ("ContainersNotReady", f"containers with unready status: [{names}]")
    )
    pods.set_condition(pod, "PodReadyToStartContainers", "False" if is_over else "True")
    pods.set_condition(
        pod, "Initialized", "True" if all(container_status.exit_code == 0 for container_status in init) else "False"
    )
    for type in ("Ready", "ContainersReady"):
        pods.set_condition(pod, type, "True" if ready else "False", *why)
