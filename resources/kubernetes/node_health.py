"""Node health: whether a node takes new work and keeps what runs there, from all that the cluster says of it. Pure.

Conditions, taints and events are read in Kubernetes' own words and in those of the agents that watch GPUs; nothing is
asked of the node itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from resources.fleet.protocol import Node
from resources.kubernetes import xid
from resources.kubernetes.objects import Object
from resources.kubernetes.workloads.conditions import seconds

PROBLEMS = (
    # NVSentinel's checks, as it names its conditions (v1.31)
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
    # node-problem-detector, its own and as AKS configures it (2026-11)
    "FilesystemCorruptionProblem",
    "GPUMissing",
    "IBLinkFlapping",
    "KernelDeadlock",
    "NVLinkStatusInactive",
    "ReadonlyFilesystem",
    "XIDErrors",
)
"""Conditions that are bad when True."""
TOLD_BY_CONDITION = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
TOLD_BY_SPEC = ("node.kubernetes.io/unschedulable",)
"""Taints that say again what a node says elsewhere."""
SCHEDULING = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods away."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a node."""

    reason: str
    since: float | None
    """Seconds since the epoch, None where the cluster does not say."""
    ends_work: bool
    """Whether what runs there is lost, and not only kept from starting there."""


@dataclass(frozen=True)
class Rules:
    """What is no reason against a node, and what is."""

    tolerations: tuple[Mapping[str, str], ...] = ()
    """Those that the pods of trainings have."""
    problems: tuple[str, ...] = PROBLEMS
    patience_seconds: float = 30.0
    """For how long a kubelet that answers may say that its node is not ready, before its pods are given up."""


def read(node: Object, warnings: Iterable[Object], rules: Rules, now: float) -> Node:
    """The node at `now`, seconds since the epoch; `warnings` are the Warning events about it."""
    name = node["metadata"]["name"]
    findings = list(_findings(node, warnings, rules, now))
    if not findings:
        return Node(name, ready=True)
    grave = [each for each in findings if each.ends_work]
    told = grave or findings
    since = min((each.since for each in told if each.since is not None), default=None)
    return Node(name, False, "; ".join(each.reason for each in told), since, cordoned=not grave)


def _findings(node: Object, warnings: Iterable[Object], rules: Rules, now: float) -> Iterator[Finding]:
    if deleted_at := node["metadata"].get("deletionTimestamp"):
        yield Finding("it is being deleted", seconds(deleted_at), ends_work=True)
    conditions = {each["type"]: each for each in node.get("status", {}).get("conditions") or ()}
    ready = conditions.get("Ready", {"status": "Unknown"})
    yield from _unready(ready, rules.patience_seconds, now)
    for name in rules.problems:
        if name in conditions:
            yield from _problem(conditions[name])
    yield from _xids(warnings, _since(ready))
    yield from _taints(node, rules.tolerations)
    if node["spec"].get("unschedulable"):
        yield Finding("it is cordoned", None, ends_work=False)


def _unready(ready: Mapping[str, Any], patience: float, now: float) -> Iterator[Finding]:
    """Unknown is a kubelet that the cluster has waited for in vain; one that says False is given some time."""
    if ready["status"] == "True":
        return
    since = _since(ready)
    ends_work = ready["status"] == "Unknown" or since is None or now - since > patience
    yield Finding(_told("Ready", ready), since, ends_work)


def _problem(condition: Mapping[str, Any]) -> Iterator[Finding]:
    """A condition that says that an application failed by its own fault is no reason against the node."""
    message = condition.get("message", "")
    if condition["status"] == "True" and (not xid.codes(message) or xid.of_the_machine(message)):
        yield Finding(_told(condition["type"], condition), _since(condition), ends_work=True)


def _xids(warnings: Iterable[Object], ready_since: float | None) -> Iterator[Finding]:
    """Errors of the machine that were reported since it last became ready: one before that, a reboot has answered."""
    for event in warnings:
        at, codes = _last_seen(event), xid.of_the_machine(event.get("message", ""))
        if codes and (at is None or ready_since is None or at >= ready_since):
            told = ", ".join(f"{code} ({xid.action(code)})" for code in codes)
            yield Finding(f"Xid {told}: {event['message']}", at, ends_work=True)


def _taints(node: Object, tolerations: Iterable[Mapping[str, str]]) -> Iterator[Finding]:
    for taint in node["spec"].get("taints") or ():
        told_elsewhere = taint["key"] in TOLD_BY_CONDITION + TOLD_BY_SPEC
        if taint["effect"] not in SCHEDULING or told_elsewhere or any(_tolerates(each, taint) for each in tolerations):
            continue
        value = f"={taint['value']}" if taint.get("value") else ""
        reason = f"its taint {taint['key']}{value}:{taint['effect']} is not tolerated"
        yield Finding(reason, seconds(taint.get("timeAdded")), ends_work=taint["effect"] == "NoExecute")


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    """As Kubernetes matches them: no key matches all, no effect matches all, and Exists any value."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    if not toleration.get("key"):
        return exists
    return toleration["key"] == taint["key"] and (exists or toleration.get("value", "") == taint.get("value", ""))


def _told(name: str, condition: Mapping[str, Any]) -> str:
    words = filter(None, [condition.get("reason"), condition.get("message")])
    return ": ".join([f"{name} is {condition['status']}", *words])


def _since(condition: Mapping[str, Any]) -> float | None:
    return seconds(condition.get("lastTransitionTime"))


def _last_seen(event: Object) -> float | None:
    return seconds(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))
