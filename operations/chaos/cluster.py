"""Faults on a Kubernetes cluster: what the API server lets Slipway do to the pods and nodes of its own jobs.

Slipway holds no right to run commands in pods (`slipway.resources.launchers.kubernetes.access`): what happens inside a
pod is asked of the ranks (`recovery.drills`). What would need a shell on a node is done on an embedded instance only.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slipway.operations.chaos.target import Done, chosen
from slipway.resources.errors import Unavailable
from slipway.resources.fleet.kubernetes.cordon import Cordon
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.objects import JOB, PODS, KubernetesObject
from slipway.resources.launchers.kubernetes import names
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import job_name
from slipway.trainer.base import console

CORDONED_SECONDS = 60.0
ANSWER_SECONDS, AGAIN_SECONDS = 60.0, 0.5
"""How long a cordon is tried, and the pause between two attempts: a kubelet changes its node at any moment."""
WHO = "chaos"
WHY = "a fault on purpose"


@dataclass(frozen=True)
class ClusterTarget:
    """A running training of a cluster."""

    facts: TrainingFacts
    durable: Path
    client: Client
    cordon: Cordon

    @property
    def pods(self) -> list[KubernetesObject]:
        """The pods of its nodes that run, by name."""
        job = names.object_name(job_name(self.facts.id, self.facts.incarnation))
        scheduled = [pod for pod in self.client.list(PODS, {JOB: job}) if pod["spec"].get("nodeName")]
        running = [pod for pod in scheduled if pod.get("status", {}).get("phase") == "Running"]
        on_nodes = [pod for pod in running if pod["spec"]["nodeName"] in self.facts.nodes or not self.facts.nodes]
        return sorted(on_nodes, key=lambda pod: str(pod["metadata"]["name"]))


def pod_deleted(grace_seconds: int | None) -> Callable[[ClusterTarget, float], Done | None]:
    """A pod is deleted: at once (0), or with the grace that it has (None)."""

    def act(target: ClusterTarget, draw: float) -> Done | None:
        pod = chosen(target.pods, draw)
        if pod is None:
            return None
        name = pod["metadata"]["name"]
        node = pod["spec"]["nodeName"]
        if not target.client.delete(PODS, name, uid=pod["metadata"].get("uid", ""), grace_seconds=grace_seconds):
            return None
        return Done(f"pod {name} on {node} was deleted{'' if grace_seconds is None else ' at once'}", node)

    return act


def node_cordoned(target: ClusterTarget, draw: float) -> Done | None:
    """New work is kept away from a node for a while; what runs there goes on. A cordon that is refused is not done."""
    pod = chosen(target.pods, draw)
    if pod is None:
        return None
    node = pod["spec"]["nodeName"]
    try:
        _answered(lambda: target.cordon.cordon(node, WHO, WHY, apply=True))
    except (ValueError, Unavailable):
        return None

    def go_on(over: threading.Event) -> None:
        over.wait(CORDONED_SECONDS)
        try:
            _answered(lambda: target.cordon.uncordon(node, WHO, "the fault is over", apply=True))
        except (ValueError, Unavailable) as error:
            console.warn(f"slipway chaos: node {node} may still be cordoned; `slipway nodes uncordon {node}`: {error}")

    return Done(f"node {node} is cordoned for {CORDONED_SECONDS:.0f} s", node, go_on)


def _answered(act: Callable[[], object]) -> None:
    """Do it, and again while the API server does not answer or the node changes meanwhile. Raises Unavailable."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            act()
            return
        except Unavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(AGAIN_SECONDS)


ClusterAct = Callable[[ClusterTarget, float], Done | None]
"""As `slipway.operations.chaos.target.Act`, on a cluster."""
