"""Suspicion: evidence against a node, from the incidents of trainings and from the fleet's reports. Pure.

An incident is evidence against its nodes only if it names few nodes. A dead node is replaced and not suspected, unless
its driver or its agents reported a fault before.
"""

from collections.abc import Iterator, Sequence

from slipway.resources.fleet.health.standing import Evidence, Weight
from slipway.resources.fleet.kubernetes import xid
from slipway.resources.fleet.protocol import Node
from slipway.trainer.base import digest
from slipway.trainer.record import causes
from slipway.trainer.record.incidents import IncidentRecord

WEIGHTS: dict[str, Weight] = {
    causes.MACHINE: Weight.MACHINE,
    causes.HUNG: Weight.MACHINE,
    causes.STRAGGLER: Weight.MACHINE,
    causes.NETWORK: Weight.MACHINE,
    causes.CORRUPTION: Weight.SEVERE,
}
"""The weight of an incident as evidence against its nodes, by cause; other causes are no evidence."""
FEW = 0.1
"""The largest share of a fleet's nodes that an incident may name and still be evidence; a single node always counts."""
HEALTH_AGENT = "the fleet"
PREFLIGHT = "preflight"
"""The kind of fault of evidence from a preflight."""


def by_incident(incident: IncidentRecord, training: str, nodes: int) -> Iterator[tuple[str, Evidence]]:
    """The evidence of an incident against each of its nodes; `nodes` is the number of nodes in the fleet."""
    codes = xid.codes(incident.reason)
    weight = _weight(incident.reason, codes) if codes else WEIGHTS.get(incident.kind)
    if weight is None or not 0 < len(set(incident.nodes)) <= max(1, int(nodes * FEW)):
        return
    fault = f"Xid {codes[0]}" if codes else incident.kind
    for node in sorted(set(incident.nodes)):
        id = f"{training}/{incident.id}"
        why = f"{training}: {incident.reason}"
        yield node, Evidence(id, fault, why, weight, incident.at, training)


def by_kernel(kernel_lines: Sequence[str], training: str, incident: IncidentRecord) -> Iterator[Evidence]:
    """The Xids that a node's kernel logged before an incident, as evidence."""
    for line in kernel_lines:
        codes = xid.codes(line)
        weight = _weight(line, codes) if codes else None
        if weight is not None:
            id = f"{training}/{incident.id}/Xid {codes[0]}"
            yield Evidence(id, f"Xid {codes[0]}", f"{training}: {line}", weight, incident.at, training)


def by_fleet(node: Node, now: float) -> Evidence | None:
    """The evidence in the fleet's report about a node; None if it reports no hardware fault."""
    if not node.fault:
        return None
    codes = xid.machine_codes(node.fault)
    since = node.since if node.since is not None else now
    id = f"{HEALTH_AGENT}/{digest.sha256(f'{node.fault} {node.since}'.encode())[:12]}"
    fault = f"Xid {codes[0]}" if codes else "condition"
    return Evidence(id, fault, node.fault, Weight.SEVERE if codes else Weight.MACHINE, since)


def by_preflight(run: str, faults: str, now: float) -> Evidence:
    """The evidence from a preflight of a node that was not under diagnosis."""
    return Evidence(f"{PREFLIGHT}/{run}", PREFLIGHT, f"preflight: {faults}", Weight.MACHINE, now)


def by_bisection(run: str, now: float) -> Evidence:
    """The evidence from a bisection that the node disturbs the network."""
    why = "a bisection found that exchanges with it fail or are slow"
    return Evidence(f"bisection/{run}", causes.NETWORK, why, Weight.SEVERE, now)


def _weight(reason: str, codes: list[int]) -> Weight | None:
    """The weight of Xids: severe for a fault of the machine; None if the driver's catalogue says to ignore all."""
    if xid.machine_codes(reason):
        return Weight.SEVERE
    if all(xid.action(code) == "IGNORE" for code in codes):
        return None
    return Weight.PROGRAM
