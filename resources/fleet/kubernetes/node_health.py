"""Node health: whether a node accepts new work and keeps its processes, from its conditions, taints and events. Pure.

They come from Kubernetes and from the agents that monitor GPUs; nothing here connects to the node itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slipway.resources.fleet.kubernetes import xid
from slipway.resources.fleet.protocol import Node
from slipway.resources.kubernetes.objects import KubernetesObject, time_seconds

PROBLEMS = (
    # the conditions of NVSentinel's checks (v1.31)
    "GpuAllWatch",
    "GpuDriverWatch",
    "GpuInforomWatch",
    "GpuMemWatch",
    "GpuNvlinkWatch",
    "GpuNvswitchFatalWatch",
    "GpuPcieWatch",
    "GpuSmWatch",
    "GpuXidError",
    "SysLogsGPUFallenOff",
    "SysLogsSXIDError",
    "SysLogsXIDError",
    # the conditions of node-problem-detector, its own and those that AKS configures (2026-11)
    "FilesystemCorruptionProblem",
    "GPUMissing",
    "IBLinkFlapping",
    "KernelDeadlock",
    "NVLinkStatusInactive",
    "ReadonlyFilesystem",
    "XIDErrors",
)
"""Conditions that are problems if True."""
ALSO_CONDITIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
ALSO_IN_THE_SPEC = ("node.kubernetes.io/unschedulable",)
"""Taints that repeat a condition or a field of the node."""
SCHEDULING = ("NoSchedule", "NoExecute")
"""The effects of taints that keep pods away."""


@dataclass(frozen=True)
class NodeFinding:
    """One problem of a node."""

    reason: str
    since: float | None
    """Seconds since the epoch; None if unknown."""
    ends_work: bool
    """Whether its processes are lost; if False, only new work is kept away."""
    is_of_hardware: bool = False
    """Whether it is a hardware fault."""


@dataclass(frozen=True)
class NodeRules:
    """What counts as a problem of a node."""

    tolerations: tuple[Mapping[str, str], ...] = ()
    """The tolerations of trainings' pods."""
    problems: tuple[str, ...] = PROBLEMS
    patience_seconds: float = 30.0
    """How long a kubelet may report its node as not ready before its pods count as lost."""


def read(node: KubernetesObject, warnings: Iterable[KubernetesObject], rules: NodeRules, now: float) -> Node:
    """The node at `now`, in seconds since the epoch; `warnings` are the Warning events about it."""
    name = node["metadata"]["name"]
    findings = list(_findings(node, warnings, rules, now))
    if not findings:
        return Node(name, ready=True)
    fatal = [finding for finding in findings if finding.ends_work]
    reported = fatal or findings
    since = min((finding.since for finding in reported if finding.since is not None), default=None)
    fault = "; ".join(finding.reason for finding in findings if finding.is_of_hardware)
    return Node(name, False, "; ".join(finding.reason for finding in reported), since, cordoned=not fatal, fault=fault)


def _findings(
    node: KubernetesObject, warnings: Iterable[KubernetesObject], rules: NodeRules, now: float
) -> Iterator[NodeFinding]:
    deleted_at = node["metadata"].get("deletionTimestamp")
    if deleted_at:
        yield NodeFinding("it is being deleted", time_seconds(deleted_at), ends_work=True)
    conditions = {condition["type"]: condition for condition in node.get("status", {}).get("conditions") or ()}
    ready = conditions.get("Ready", {"status": "Unknown"})
    yield from _unready(ready, rules.patience_seconds, now)
    for name in rules.problems:
        if name in conditions:
            yield from _problem(conditions[name])
    yield from _xids(warnings, _since(ready))
    yield from _taints(node, rules.tolerations)
    if node["spec"].get("unschedulable"):
        yield NodeFinding("it is cordoned", None, ends_work=False)


def _unready(ready: Mapping[str, Any], patience: float, now: float) -> Iterator[NodeFinding]:
    """The finding of a node that is not ready. With Unknown, the cluster has already waited for the kubelet; with
    False, the node gets `patience` seconds."""
    if ready["status"] == "True":
        return
    since = _since(ready)
    ends_work = ready["status"] == "Unknown" or since is None or now - since > patience
    yield NodeFinding(_sentence("Ready", ready), since, ends_work)


def _problem(condition: Mapping[str, Any]) -> Iterator[NodeFinding]:
    """The finding of a condition, unless its message only reports a fault of an application."""
    message = condition.get("message", "")
    if condition["status"] == "True" and (not xid.codes(message) or xid.machine_codes(message)):
        yield NodeFinding(
            _sentence(condition["type"], condition), _since(condition), ends_work=True, is_of_hardware=True
        )


def _xids(warnings: Iterable[KubernetesObject], ready_since: float | None) -> Iterator[NodeFinding]:
    """The machine's errors since it last became ready; a reboot has cleared earlier ones."""
    for event in warnings:
        at = _last_seen(event)
        codes = xid.machine_codes(event.get("message", ""))
        if codes and (at is None or ready_since is None or at >= ready_since):
            named = ", ".join(f"{code} ({xid.action(code)})" for code in codes)
            yield NodeFinding(f"Xid {named}: {event['message']}", at, ends_work=True, is_of_hardware=True)


def _taints(node: KubernetesObject, tolerations: Iterable[Mapping[str, str]]) -> Iterator[NodeFinding]:
    for taint in node["spec"].get("taints") or ():
        is_repeated = taint["key"] in ALSO_CONDITIONS + ALSO_IN_THE_SPEC
        if (
            taint["effect"] not in SCHEDULING
            or is_repeated
            or any(_tolerates(toleration, taint) for toleration in tolerations)
        ):
            continue
        value = f"={taint['value']}" if taint.get("value") else ""
        reason = f"its taint {taint['key']}{value}:{taint['effect']} is not tolerated"
        yield NodeFinding(reason, time_seconds(taint.get("timeAdded")), ends_work=taint["effect"] == "NoExecute")


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    """Whether a toleration matches a taint. As in Kubernetes, a missing key or effect matches all, and Exists matches
    any value."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    if not toleration.get("key"):
        return exists
    return toleration["key"] == taint["key"] and (exists or toleration.get("value", "") == taint.get("value", ""))


def _sentence(name: str, condition: Mapping[str, Any]) -> str:
    details = filter(None, [condition.get("reason"), condition.get("message")])
    return ": ".join([f"{name} is {condition['status']}", *details])


def _since(condition: Mapping[str, Any]) -> float | None:
    return time_seconds(condition.get("lastTransitionTime"))


def _last_seen(event: KubernetesObject) -> float | None:
    return time_seconds(
        event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    )
