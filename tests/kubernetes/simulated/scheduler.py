"""The scheduler: filters and scores nodes for each pending pod (k8s.io/kubernetes/pkg/scheduler/framework/plugins)."""

import collections
from collections.abc import Iterable

from tests.kubernetes.simulated import placement, pods
from tests.kubernetes.simulated.controllers import Key, Manager
from tests.kubernetes.simulated.kinds import CLAIMS, NODES, PODS, Object
from tests.kubernetes.simulated.store import Change, where

SCHEDULERS = {"default-scheduler", "volcano"}
"""The schedulers whose pods are bound. A pod of another scheduler waits without a message."""


class Scheduler:
    def __init__(self, manager: Manager) -> None:
        self._registry, self._store, self._events = manager.registry, manager.store, manager.events

    def keys(self, change: Change) -> Iterable[Key]:
        """A new pod; all waiting pods when there may be room: a node changed, a pod ended, a claim appeared."""
        if change.resource == PODS and change.event != "DELETED" and _is_pending(change.object):
            yield where(change.object)
        elif change.resource == PODS and not _frees(change):
            return
        elif change.resource in (PODS, NODES, CLAIMS):
            yield from [where(pod) for pod in self._store.all_of(PODS) if _is_pending(pod)]

    def sync(self, key: Key) -> None:
        pod = self._store.get(PODS, *key)
        if pod is None or not _is_pending(pod):
            return
        if missing := self._missing_claim(pod):
            self._refuse(pod, f"0/{len(self._store.all_of(NODES))} nodes are available: {missing}")
            return
        nodes, refusals = placement.filtered(pod, self._store.all_of(NODES), self._store.all_of(PODS))
        if nodes:
            self._bind(pod, placement.best(pod, nodes, self._store.all_of(PODS)))
        else:
            self._refuse(pod, _why(refusals))

    def _missing_claim(self, pod: Object) -> str:
        for volume in pod["spec"].get("volumes") or ():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and self._store.get(CLAIMS, pod["metadata"]["namespace"], claim) is None:
                return f'persistentvolumeclaim "{claim}" not found. ' + _preemption(len(self._store.all_of(NODES)))
        return ""

    def _bind(self, pod: Object, node: str) -> None:
        def bind(it: Object) -> None:
            it["spec"]["nodeName"] = node
            pods.set_condition(it, "PodScheduled", "True")

        self._registry.change(PODS, pod, bind)
        namespace, name = where(pod)
        message = f"Successfully assigned {namespace}/{name} to {node}"
        self._events.normal(pod, "Scheduled", message, pod["spec"]["schedulerName"])

    def _refuse(self, pod: Object, why: str) -> None:
        before = pods.condition(pod, "PodScheduled")
        if before is None or before.get("message") != why:
            self._events.warning(pod, "FailedScheduling", why, pod["spec"]["schedulerName"])
        how = lambda it: pods.set_condition(it, "PodScheduled", "False", "Unschedulable", why)  # noqa: E731
        self._registry.change(PODS, pod, how)


def _is_pending(pod: Object) -> bool:
    spec = pod["spec"]
    return not spec.get("nodeName") and pods.is_active(pod) and spec["schedulerName"] in SCHEDULERS


def _frees(change: Change) -> bool:
    """Whether a pod has freed its resources."""
    over = change.event == "DELETED" or pods.is_finished(change.object)
    return over and change.before is not None and not pods.is_finished(change.before)


def _why(refusals: list[list[str]]) -> str:
    """``0/2 nodes are available: 1 Insufficient cpu, 1 node(s) ...``, as FitError has it."""
    if not refusals:
        return "no nodes available to schedule pods"
    counted = collections.Counter(reason for refusal in refusals for reason in refusal)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    return f"0/{len(refusals)} nodes are available: {reasons}. {_preemption(len(refusals))}"


def _preemption(nodes: int) -> str:
    why = f"0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    return f"no new claims to deallocate, preemption: {why}"
