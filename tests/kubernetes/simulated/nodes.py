"""The control plane's reaction to nodes that do not answer, and to the pods on them.

The node lifecycle controller (k8s.io/kubernetes/pkg/controller/nodelifecycle), taint eviction (.../tainteviction) and
the pod garbage collector (.../podgc).
"""

import asyncio
from collections.abc import Iterable

from tests.kubernetes.simulated import clock, placement, pods
from tests.kubernetes.simulated.controllers import Key, Manager
from tests.kubernetes.simulated.kinds import NODES, PODS, Object
from tests.kubernetes.simulated.store import Change, where

MONITOR_GRACE_SECONDS = 40.0
"""--node-monitor-grace-period: after so long without a report, the state of the node is Unknown."""
TAINTS = {"Unknown": "node.kubernetes.io/unreachable", "False": "node.kubernetes.io/not-ready"}
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class NodeLifecycle:
    """Node conditions and the taints that follow from them."""

    def __init__(self, manager: Manager) -> None:
        self._registry, self._store, self._events = manager.registry, manager.store, manager.events
        self._manager = manager
        self._silent: set[str] = set()

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource == NODES and change.event != "DELETED":
            yield where(change.object)

    def falls_silent(self, node: str) -> None:
        """The kubelet stops renewing its lease."""
        self._silent.add(node)
        self._manager.enqueue_after(MONITOR_GRACE_SECONDS / clock.HURRY, self, ("silent", node))

    def is_heard(self, node: str) -> None:
        self._silent.discard(node)

    def sync(self, key: Key) -> None:
        kind, name = key
        node = self._store.get(NODES, "", name)
        if node is None:
            return
        if kind == "silent" and name in self._silent:
            node = self._registry.change(NODES, node, _lose)
            self._mark_pods(node)
        self._registry.change(NODES, node, _taint)

    def _mark_pods(self, node: Object) -> None:
        """Pods of a node that does not answer are not ready."""
        for pod in self._store.all_of(PODS):
            if pod["spec"].get("nodeName") == node["metadata"]["name"] and pods.is_true(pod, "Ready"):
                self._registry.change(PODS, pod, lambda it: pods.set_condition(it, "Ready", "False"))
                self._events.warning(pod, "NodeNotReady", "Node is not ready", "node-controller")


class TaintEviction:
    """Deletes pods from nodes with a NoExecute taint that they do not, or no longer, tolerate."""

    def __init__(self, manager: Manager) -> None:
        self._registry, self._store, self._events = manager.registry, manager.store, manager.events
        self._manager = manager
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource == NODES:
            yield from [where(pod) for pod in self._store.all_of(PODS) if _is_on(pod, change.object)]
        elif change.resource == PODS and change.object["spec"].get("nodeName"):
            yield where(change.object)

    def sync(self, key: Key) -> None:
        pod = self._store.get(PODS, *key)
        node = self._store.get(NODES, "", pod["spec"]["nodeName"]) if pod else None
        if pod is None or node is None or not pods.is_active(pod):
            return
        uid, taints = pod["metadata"]["uid"], _no_execute(node)
        if not taints:
            if timer := self._timers.pop(uid, None):
                timer.cancel()
                self._events.normal(
                    pod, "TaintManagerEviction", "Cancelling deletion of Pod", "taint-eviction-controller"
                )
            return
        tolerations = [placement.tolerates(pod, taint) for taint in taints]
        if None in tolerations:
            self._evict(key, uid)
            return
        seconds = [
            toleration["tolerationSeconds"]
            for toleration in tolerations
            if toleration and "tolerationSeconds" in toleration
        ]
        if seconds and uid not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[uid] = loop.call_later(min(seconds) / clock.HURRY, self._evict, key, uid)

    def _evict(self, key: Key, uid: str) -> None:
        self._timers.pop(uid, None)
        pod = self._store.get(PODS, *key)
        if pod is None or pod["metadata"]["uid"] != uid or not pods.is_active(pod):
            return
        message = f"Marking for deletion Pod {key[0]}/{key[1]}"
        self._events.normal(pod, "TaintManagerEviction", message, "taint-eviction-controller")
        why = "Taint manager: deleting due to NoExecute taint"
        pods.disrupt(self._registry, pod, "DeletionByTaintManager", why)
        self._registry.delete(PODS, *key)


class PodGarbageCollector:
    """Fails and removes the pods of nodes that are gone for good."""

    def __init__(self, manager: Manager) -> None:
        self._registry, self._store = manager.registry, manager.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource == NODES:
            yield from [where(pod) for pod in self._store.all_of(PODS) if _is_on(pod, change.object)]
        elif change.resource == PODS and change.object["spec"].get("nodeName"):
            yield where(change.object)

    def sync(self, key: Key) -> None:
        pod = self._store.get(PODS, *key)
        if pod is None or not pod["spec"].get("nodeName"):
            return
        node = self._store.get(NODES, "", pod["spec"]["nodeName"])
        if node is None:
            self._remove(pod, "PodGC: node no longer exists")
        elif pods.is_terminating(pod) and _is_out_of_service(node):
            self._remove(pod, "PodGC: pod is terminating on an out-of-service node")

    def _remove(self, pod: Object, why: str) -> None:
        if not pods.is_finished(pod):
            pod = pods.disrupt(self._registry, pod, "DeletionByPodGC", why)
            pod = self._registry.change(PODS, pod, lambda it: it["status"].update(phase="Failed"))
        if self._store.get(PODS, *where(pod)):
            self._registry.delete(PODS, *where(pod), {"gracePeriodSeconds": 0})


def _lose(node: Object) -> None:
    for type in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
        pods.set_condition(node, type, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")


def _taint(node: Object) -> None:
    """NoSchedule and NoExecute for what the condition Ready says; of a cordon, NoSchedule."""
    ready = pods.condition(node, "Ready")
    taint_key = TAINTS.get(ready["status"]) if ready else None
    managed_keys = {*TAINTS.values(), "node.kubernetes.io/unschedulable"}
    before = node["spec"].get("taints") or []
    taints = [taint for taint in before if taint["key"] not in managed_keys]
    new = [(taint_key, "NoSchedule"), (taint_key, "NoExecute")] if taint_key else []
    new += [("node.kubernetes.io/unschedulable", "NoSchedule")] if node["spec"].get("unschedulable") else []
    for key, effect in new:
        same = [taint for taint in before if (taint["key"], taint["effect"]) == (key, effect)]
        taints += same or [{"key": key, "effect": effect, "timeAdded": clock.now()}]
    node["spec"]["taints"] = taints
    if not taints:
        del node["spec"]["taints"]


def _no_execute(node: Object) -> list[Object]:
    return [taint for taint in node["spec"].get("taints") or () if taint["effect"] == "NoExecute"]


def _is_on(pod: Object, node: Object) -> bool:
    return bool(pod["spec"].get("nodeName") == node["metadata"]["name"])


def _is_out_of_service(node: Object) -> bool:
    return any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints") or ())
