"""The fleet of a Kubernetes cluster: the nodes with the labels in the platform's settings, and their state."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.kubernetes import node_health
from slipway.resources.fleet.protocol import Node
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import EVENTS, NODES, ClusterReader, KubernetesObject

EVENTS_NAMESPACE = "default"
"""The namespace in which Kubernetes stores the events of objects without a namespace."""
EVENTS_SECONDS = 2.0
"""How long events are cached, so that a tick over a hundred trainings reads them only once."""


@dataclass
class KubernetesFleet:
    """Implements `slipway.resources.fleet.protocol.Fleet`."""

    reader: ClusterReader
    cluster: Cluster
    problems: tuple[str, ...] = node_health.PROBLEMS
    """The conditions, besides Ready, that are problems if True."""
    clock: Callable[[], float] = time.time
    scheduled: ClassVar = True
    _warnings: Mapping[str, list[KubernetesObject]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _warned_at: float = field(default=0.0, init=False, repr=False, compare=False)

    def nodes(self) -> list[Node]:
        """All nodes by name.

        Raises Unavailable also if no node has the labels, since a mistake in the settings must not look like a lost
        fleet; but not with an autoscaler, which may have removed all nodes.
        """
        node_objects = self.reader.list(NODES, self.cluster.node_selector)
        if not node_objects and not self.cluster.demand_priority:
            raise Unavailable(
                f"found no node with the labels {dict(self.cluster.node_selector)}; label the nodes of the fleet, "
                "or change compute.cluster.node_selector in the platform's settings"
            )
        now = self.clock()
        if not 0 <= now - self._warned_at <= EVENTS_SECONDS:
            self._warnings = self._read_warnings()
            self._warned_at = now
        return sorted((self._read(node, now) for node in node_objects), key=lambda node: node.name)

    def _read(self, node: KubernetesObject, now: float) -> Node:
        return node_health.read(node, self._warnings.get(node["metadata"]["name"], []), self._rules, now)

    @property
    def _rules(self) -> node_health.NodeRules:
        """The rules for nodes. Spot nodes belong to the fleet; the scheduler keeps trainings that do not tolerate them
        away."""
        tolerations = (*self.cluster.tolerations, *self.cluster.spot_tolerations)
        return node_health.NodeRules(tolerations, self.problems, self.cluster.unreachable_seconds)

    def _read_warnings(self) -> Mapping[str, list[KubernetesObject]]:
        """The Warning events of each node."""
        warnings: defaultdict[str, list[KubernetesObject]] = defaultdict(list)
        for event in self.reader.list(EVENTS, {}, namespace=EVENTS_NAMESPACE):
            about = event["involvedObject"]
            if event.get("type") == "Warning" and about.get("kind") == "Node":
                warnings[about.get("name", "")].append(event)
        return warnings
