"""The nodes of a cluster as a fleet: those with the labels of the platform's settings, as `node_health` reads them."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from resources.fleet.protocol import Node
from resources.kubernetes import node_health
from resources.kubernetes.cluster import Cluster
from resources.kubernetes.objects import EVENTS, NODES, Object
from resources.kubernetes.reader import Reader
from resources.launcher.protocol import Unavailable

EVENTS_NAMESPACE = "default"
"""Where Kubernetes keeps the events of what is in no namespace."""
EVENTS_SECONDS = 2.0
"""How old events may be: whoever looks at a hundred trainings in one tick asks for them once."""


@dataclass
class KubernetesFleet:
    """Implements `resources.fleet.protocol.Fleet`."""

    reader: Reader
    cluster: Cluster
    problems: tuple[str, ...] = node_health.PROBLEMS
    """The conditions, besides Ready, that are bad when True."""
    clock: Callable[[], float] = time.time
    scheduled: ClassVar = True
    _warnings: Mapping[str, list[Object]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _warned_at: float = field(default=0.0, init=False, repr=False, compare=False)

    def nodes(self) -> list[Node]:
        """All nodes by name.

        Raises Unavailable also when no node has the labels: a slip in the settings must not look as if all were lost.
        """
        found = self.reader.list(NODES, self.cluster.node_selector)
        if not found:
            raise Unavailable(
                f"no node of the cluster has the labels {dict(self.cluster.node_selector)}: label those of the fleet, "
                "or change the node selector of the platform's Kubernetes settings"
            )
        now = self.clock()
        if not 0 <= now - self._warned_at <= EVENTS_SECONDS:
            self._warnings, self._warned_at = self._read_warnings(), now
        return sorted((self._read(node, now) for node in found), key=lambda node: node.name)

    def _read(self, node: Object, now: float) -> Node:
        return node_health.read(node, self._warnings.get(node["metadata"]["name"], []), self._rules, now)

    @property
    def _rules(self) -> node_health.Rules:
        """Spot nodes belong to the fleet: which training may run there is between its pods and the scheduler."""
        tolerations = (*self.cluster.tolerations, *self.cluster.spot_tolerations)
        return node_health.Rules(tolerations, self.problems, self.cluster.unreachable_seconds)

    def _read_warnings(self) -> Mapping[str, list[Object]]:
        """The Warning events of each node."""
        warnings: defaultdict[str, list[Object]] = defaultdict(list)
        for event in self.reader.list(EVENTS, {}, namespace=EVENTS_NAMESPACE):
            about = event["involvedObject"]
            if event.get("type") == "Warning" and about.get("kind") == "Node":
                warnings[about.get("name", "")].append(event)
        return warnings
