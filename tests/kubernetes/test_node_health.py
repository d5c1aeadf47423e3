"""Node health: the state of a node from its conditions, taints and events. No cluster is needed."""

from typing import Any

import pytest

from slipway.resources.fleet.kubernetes import node_health, xid
from slipway.resources.fleet.kubernetes.node_health import NodeRules
from slipway.resources.fleet.protocol import Node
from slipway.resources.kubernetes.objects import KubernetesObject, time_seconds

pytestmark = pytest.mark.pure

BOOTED, NOW = "2026-11-21T10:00:00Z", "2026-11-21T12:00:00Z"
AT_NOON = time_seconds(NOW) or 0.0
GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}


def condition(type: str, status: str, at: str = BOOTED, reason: str = "", message: str = "") -> KubernetesObject:
    return {"type": type, "status": status, "lastTransitionTime": at, "reason": reason, "message": message}


def node(*conditions: KubernetesObject, taints: list[KubernetesObject] | None = None, **spec: Any) -> KubernetesObject:
    """A node that has been ready since it booted, apart from the given conditions, taints and fields."""
    conditions_by_type = {entry["type"]: entry for entry in (condition("Ready", "True"), *conditions)}
    return {
        "metadata": {"name": "node-7"},
        "spec": {"taints": taints or [], **spec},
        "status": {"conditions": list(conditions_by_type.values())},
    }


def warning(message: str, at: str = "2026-11-21T11:00:00Z") -> KubernetesObject:
    return {"message": message, "lastTimestamp": at, "metadata": {}}


def read(node: KubernetesObject, *warnings: KubernetesObject, rules: NodeRules = NodeRules((GPU,))) -> Node:  # noqa: B008
    return node_health.read(node, warnings, rules, AT_NOON)


def test_a_node_without_findings_is_ready():
    assert read(node()) == Node("node-7", ready=True)


def test_a_node_whose_kubelet_is_silent_is_lost():
    silent = condition("Ready", "Unknown", NOW, "NodeStatusUnknown", "Kubelet stopped posting node status.")
    reading = read(node(silent))
    assert reading.lost and reading.since == AT_NOON
    assert reading.reason == "Ready is Unknown: NodeStatusUnknown: Kubelet stopped posting node status."


def test_a_kubelet_may_be_not_ready_for_as_long_as_its_pods_tolerate_it():
    unready = node(condition("Ready", "False", "2026-11-21T11:59:40Z", "KubeletNotReady", "no runtime"))
    early, late = read(unready), read(unready, rules=NodeRules(patience_seconds=10))
    assert not early.ready and not early.lost
    assert late.lost and late.reason == early.reason == "Ready is False: KubeletNotReady: no runtime"


def test_a_node_that_has_never_reported_is_not_ready():
    assert not read(node() | {"status": {}}).ready


def test_a_cordoned_node_takes_no_new_work_and_keeps_its_processes():
    unschedulable = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    reading = read(node(unschedulable=True, taints=[unschedulable]))
    assert (reading.ready, reading.lost, reading.reason) == (False, False, "it is cordoned")


def test_a_node_that_is_being_deleted_is_lost():
    leaving = node()
    leaving["metadata"]["deletionTimestamp"] = NOW
    assert read(leaving) == Node("node-7", False, "it is being deleted", AT_NOON)


@pytest.mark.parametrize(
    ("taint", "ready", "lost"),
    [
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, True, False),
        ({"key": "spot", "effect": "PreferNoSchedule"}, True, False),
        ({"key": "quarantine", "value": "ecc", "effect": "NoSchedule"}, False, False),
        ({"key": "quarantine", "value": "ecc", "effect": "NoExecute"}, False, True),
        ({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}, False, True),
        ({"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}, False, False),
    ],
)
def test_only_taints_count_that_trainings_do_not_tolerate(taint: KubernetesObject, ready: bool, lost: bool):
    reading = read(node(taints=[taint]))
    assert (reading.ready, reading.lost) == (ready, lost)
    assert ready or f"its taint {taint['key']}" in reading.reason


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "pool", "operator": "Exists"}, True),
        ({"key": "pool", "value": "spot"}, True),
        ({"key": "pool", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}, True),
        ({"key": "pool", "value": "reserved"}, False),
        ({"key": "pool", "value": "spot", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_match_as_those_of_pods_do(toleration: dict[str, str], tolerated: bool):
    spot = node(taints=[{"key": "pool", "value": "spot", "effect": "NoSchedule"}])
    assert read(spot, rules=NodeRules((toleration,))).ready is tolerated


def test_a_problem_that_an_agent_found_with_a_gpu_makes_its_node_lost():
    message = "ErrorCode:79 PCI:0000:3b:00 Xid error Recommended Action=RESTART_BM;"
    reading = read(node(condition("SysLogsXIDError", "True", NOW, "SysLogsXIDErrorIsNotHealthy", message)))
    assert reading.lost and reading.since == AT_NOON
    assert reading.reason == f"SysLogsXIDError is True: SysLogsXIDErrorIsNotHealthy: {message}"


@pytest.mark.parametrize(
    "harmless",
    [
        condition("SysLogsXIDError", "False", reason="SysLogsXIDErrorIsHealthy"),
        condition("XIDErrors", "True", message="NVRM: Xid (PCI:0000:3b:00): 13, Graphics SM Warp Exception"),
        condition("MadeUpByNobody", "True"),
    ],
)
def test_conditions_without_a_fault_of_the_machine_do_not_count(harmless: KubernetesObject):
    assert read(node(harmless)).ready


def test_the_fleet_chooses_which_conditions_are_problems():
    assert read(node(condition("Flooded", "True")), rules=NodeRules(problems=("Flooded",))).lost


def test_an_xid_of_the_machine_among_the_events_makes_its_node_lost():
    reading = read(node(), warning("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."))
    assert reading.lost and reading.reason.startswith("Xid 79 (RESTART_BM): NVRM:")
    assert reading.since == time_seconds("2026-11-21T11:00:00Z")


def test_an_xid_of_the_application_does_not():
    assert read(node(), warning("NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, MMU Fault")).ready


def test_an_xid_from_before_the_last_boot_does_not_count():
    assert read(node(), warning("NVRM: Xid (PCI:0000:3b:00): 79", at="2026-11-21T09:59:59Z")).ready


def test_the_reason_names_what_ends_work_and_not_what_only_keeps_new_work_away():
    taints = [{"key": "quarantine", "effect": "NoSchedule"}, {"key": "gone", "effect": "NoExecute"}]
    reading = read(node(condition("GPUMissing", "True"), taints=taints, unschedulable=True))
    assert reading.reason == "GPUMissing is True; its taint gone:NoExecute is not tolerated"


@pytest.mark.parametrize(
    ("message", "codes"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.", [79]),
        ("XID 48 on GPU-0", [48]),
        ("ErrorCode:119 GPU:0 Timeout after 6s Recommended Action=COMPONENT_RESET;", [119]),
        ("ErrorCode:DCGM_FR_PCI_REPLAY_RATE GPU:0 Pcie error on GPU 0", []),
        ("Node node-7 status is now: NodeNotReady", []),
    ],
)
def test_codes_are_found_in_messages_of_the_kernel_and_of_agents(message: str, codes: list[int]):
    assert xid.codes(message) == codes


@pytest.mark.parametrize("code", [46, 48, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143, 145])
def test_codes_of_the_machine(code: int):
    assert xid.machine_codes(f"Xid (PCI:0000:3b:00): {code}, …") == [code]


@pytest.mark.parametrize("code", [8, 13, 31, 32, 43, 45, 63, 92, 94, 137, 999])
def test_codes_of_the_application_and_those_to_be_ignored(code: int):
    assert xid.machine_codes(f"Xid (PCI:0000:3b:00): {code}, …") == []


@pytest.mark.parametrize(("action", "counts"), [("None", False), ("GPU Reset Required", True), ("OS Reboot", True)])
def test_code_154_counts_by_the_action_in_its_message(action: str, counts: bool):
    message = f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 ({action})"
    assert xid.machine_codes(message) == ([154] if counts else [])


def test_no_code_is_in_two_rows_of_the_table():
    rows = [xid._codes_of(row) for row in xid.ACTIONS.values()]
    assert sum(map(len, rows)) == len({code for row in rows for code in row})
