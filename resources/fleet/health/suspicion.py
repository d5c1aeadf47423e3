"""Suspicion: what speaks against a node, from the incidents of trainings and from what the fleet says. Pure.

An incident speaks against a node when it names few nodes: one that names them all singles none out. A node that died
is replaced and not suspected; what its driver or its agents said before is another matter.
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
"""What an incident of each class says about the nodes that it names; other classes say nothing."""
FEW = 0.1
"""The largest share of a fleet's nodes that an incident may name to speak against them; one node always may be."""
HEALTH_AGENT = "the fleet"
PREFLIGHT = "preflight"
"""The fault of evidence that a preflight found."""


def by_incident(incident: IncidentRecord, training: str, nodes: int) -> Iterator[tuple[str, Evidence]]:
    """Each node that an incident speaks against, with the evidence; `nodes` is how many the fleet has."""
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
    """The Xids that a node's kernel logged before an incident, as evidence; a process killed for memory is none."""
    for line in kernel_lines:
        if (codes := xid.codes(line)) and (weight := _weight(line, codes)) is not None:
            id = f"{training}/{incident.id}/Xid {codes[0]}"
            yield Evidence(id, f"Xid {codes[0]}", f"{training}: {line}", weight, incident.at, training)


def by_fleet(node: Node, now: float) -> Evidence | None:
    """The evidence in what the fleet says of a node; None where it finds no fault of the hardware."""
    if not node.fault:
        return None
    codes = xid.machine_codes(node.fault)
    since = node.since if node.since is not None else now
    id = f"{HEALTH_AGENT}/{digest.sha256(f'{node.fault} {node.since}'.encode())[:12]}"
    fault = f"Xid {codes[0]}" if codes else "condition"
    return Evidence(id, fault, node.fault, Weight.SEVERE if codes else Weight.MACHINE, since)


def by_preflight(run: str, faults: str, now: float) -> Evidence:
    """What a preflight found on a node that was not under diagnosis."""
    return Evidence(f"{PREFLIGHT}/{run}", PREFLIGHT, f"preflight: {faults}", Weight.MACHINE, now)


def by_bisection(run: str, now: float) -> Evidence:
    """That a bisection found the node to spoil the network."""
    why = "a bisection found that exchanges with it fail, or are slow"
    return Evidence(f"bisection/{run}", causes.NETWORK, why, Weight.SEVERE, now)


def _weight(reason: str, codes: list[int]) -> Weight | None:
    """An Xid of the machine is severe, one that the driver's catalog says to ignore says nothing."""
    if xid.machine_codes(reason):
        return Weight.SEVERE
    return None if all(xid.action(code) == "IGNORE" for code in codes) else Weight.PROGRAM
