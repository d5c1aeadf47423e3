"""The guarded fleet: nodes that are out of service get no new work, but keep the work that they have."""

from dataclasses import dataclass, replace

from slipway.resources.fleet.health.register import NodeRegister
from slipway.resources.fleet.health.standing import HealthRules, NodeRecord
from slipway.resources.fleet.protocol import Fleet, Node


@dataclass(frozen=True)
class GuardedFleet:
    """Implements `slipway.resources.fleet.protocol.Fleet` over another fleet."""

    fleet: Fleet
    register: NodeRegister
    rules: HealthRules

    @property
    def scheduled(self) -> bool:
        return self.fleet.scheduled

    def nodes(self) -> list[Node]:
        """All nodes by name. Raises Unavailable also if a node's health record cannot be read."""
        standings = self.register.newest()
        return [self._guarded(node, standings.get(node.name)) for node in self.fleet.nodes()]

    def _guarded(self, node: Node, record: NodeRecord | None) -> Node:
        if not node.ready or (record is not None and record.number and not record.out_of_service):
            return node
        if record is not None and record.number:
            return replace(node, ready=False, reason=f"{record.standing}: {record.why}", since=record.at, cordoned=True)
        # The node has no record yet, since the sensor may be slower than the process that places work.
        if self.rules.preflight_joining:
            return replace(node, ready=False, reason="joining: a new node must pass a preflight first", cordoned=True)
        return node
