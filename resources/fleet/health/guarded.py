"""The fleet as work may use it: a node that is out of service by its standing takes none, and keeps what it has."""

from dataclasses import dataclass, replace

from resources.fleet.health.register import NodeRegister
from resources.fleet.health.standing import NodeRecord
from resources.fleet.protocol import Fleet, Node


@dataclass(frozen=True)
class GuardedFleet:
    """Implements `resources.fleet.protocol.Fleet` over another fleet."""

    fleet: Fleet
    register: NodeRegister

    @property
    def scheduled(self) -> bool:
        return self.fleet.scheduled

    def nodes(self) -> list[Node]:
        """All nodes by name. Raises Unavailable also when a standing cannot be read."""
        standings = self.register.newest()
        return [_guarded(node, standings.get(node.name)) for node in self.fleet.nodes()]


def _guarded(node: Node, record: NodeRecord | None) -> Node:
    if record is None or not record.out_of_service or not node.ready:
        return node
    return replace(node, ready=False, reason=f"{record.standing}: {record.why}", since=record.at, cordoned=True)
