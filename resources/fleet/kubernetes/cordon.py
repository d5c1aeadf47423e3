"""Cordon: the only way in which Slipway takes a node of a cluster out of service or back into service.

A person decides to cordon a node (`slipway nodes cordon NODE --why WORDS`), or `slipway.resources.fleet.health` does,
if the platform's settings allow it (`compute.quarantine.apply`). Without `apply` nothing changes, and the act only says
what would happen. Each act is recorded on the durable tier before it is done, and on the node, with who did it and why.
"""

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from slipway.resources.errors import Unavailable
from slipway.resources.kubernetes.objects import NODES, ClusterWriter, KubernetesObject
from slipway.trainer.base import atomic, codec, lock, parsing

FORMAT = "slipway.cordon/1"
CORDONED = "slipway/cordoned"
"""The annotation of a node that Slipway cordoned: who, why and when, as JSON."""
EXEMPT = "slipway/cordon"
"""The label of a node that Slipway must not cordon; its value is `never`."""
SHARE = 0.1
"""The largest share of the fleet's nodes that may be cordoned at the same time, by anybody; one node always may."""
FOLDER = "cordons"
"""The folder on the durable tier with a create-only file for each act."""


@dataclass(frozen=True)
class Act:
    """A change to a node; if `applied` is False, the change that would be made."""

    verb: Literal["cordon", "uncordon"]
    node: str
    who: str
    why: str
    at: float
    """Seconds since the epoch."""
    applied: bool

    def __str__(self) -> str:
        did = f"{self.verb}ed" if self.applied else f"would {self.verb}"
        return f"{did} {self.node}: {self.why} ({self.who})"


@dataclass(frozen=True)
class Cordon:
    """Cordons the nodes of one fleet, which are the nodes with these labels."""

    cluster: ClusterWriter
    labels: dict[str, str]
    durable: Path

    def cordon(self, node: str, who: str, why: str, apply: bool = False) -> Act:
        """Keep new work away from the node; running work goes on.

        Raises ValueError, before anything has changed, if that is impossible or not allowed, and Unavailable.
        """
        act = Act("cordon", node, who, why, time.time(), apply)
        with lock.exclusive(self.durable / FOLDER):
            nodes = self._nodes()
            node_object = _node_object(nodes, node)
            _must_be_allowed(node_object, list(nodes.values()))
            note = atomic.canonical_json({"who": who, "why": why, "at": act.at}).decode()
            return self._do(act, node_object, unschedulable=True, note=note)

    def uncordon(self, node: str, who: str, why: str, apply: bool = False) -> Act:
        """Allow new work on a node that Slipway cordoned. Raises as `cordon`."""
        act = Act("uncordon", node, who, why, time.time(), apply)
        with lock.exclusive(self.durable / FOLDER):
            node_object = _node_object(self._nodes(), node)
            if not node_object["spec"].get("unschedulable"):
                raise ValueError(f"node {node}: found an uncordoned node, expected a cordoned one")
            if CORDONED not in _annotations(node_object):
                raise ValueError(f"node {node}: Slipway has not cordoned it; use kubectl uncordon {node}")
            return self._do(act, node_object, unschedulable=None, note=None)

    def is_exempt(self, node: str) -> bool:
        """Whether the node's label forbids cordoning it. Raises Unavailable."""
        node_object = self._nodes().get(node)
        return node_object is not None and node_object["metadata"].get("labels", {}).get(EXEMPT) == "never"

    def _do(self, act: Act, node_object: KubernetesObject, unschedulable: bool | None, note: str | None) -> Act:
        """Record the act and change the node, unless it has changed meanwhile; record a failure."""
        if not act.applied:
            return act
        change = {
            "metadata": {
                "resourceVersion": node_object["metadata"]["resourceVersion"],
                "annotations": {CORDONED: note},
            },
            "spec": {"unschedulable": unschedulable},
        }
        self._record(act, "")
        try:
            self.cluster.patch(NODES, act.node, change)
        except (ValueError, Unavailable) as error:
            self._record(replace(act, at=time.time(), applied=False), str(error))
            raise
        return act

    def _record(self, act: Act, error: str) -> None:
        when = datetime.fromtimestamp(act.at, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        record = dict(codec.plain(act))
        if error:
            record["error"] = error
        path = self.durable / FOLDER / f"{when}-{act.node}.json"
        if not codec.create_only(path, record, FORMAT):
            raise ValueError(f"{path}: found a record of the same time; nothing was done, try again")

    def _nodes(self) -> dict[str, KubernetesObject]:
        return {node["metadata"]["name"]: node for node in self.cluster.list(NODES, self.labels)}


def limit(nodes: int) -> int:
    """How many of a fleet's `nodes` may be cordoned at the same time."""
    return max(1, int(nodes * SHARE))


def _must_be_allowed(node: KubernetesObject, fleet: list[KubernetesObject]) -> None:
    """Raises ValueError unless the node may be cordoned now."""
    name = node["metadata"]["name"]
    if node["spec"].get("unschedulable"):
        raise ValueError(f"node {name}: it is cordoned already{_by_whom(node)}")
    if node["metadata"].get("labels", {}).get(EXEMPT) == "never":
        raise ValueError(f"node {name}: its label {EXEMPT}=never forbids cordoning it")
    cordoned = [other["metadata"]["name"] for other in fleet if other["spec"].get("unschedulable")]
    if len(cordoned) >= limit(len(fleet)):
        raise ValueError(
            f"node {name}: {', '.join(cordoned)} are cordoned already, and at most {limit(len(fleet))} of {len(fleet)} "
            "nodes may be; uncordon one first, or cordon this one with kubectl"
        )


def _node_object(nodes: dict[str, KubernetesObject], name: str) -> KubernetesObject:
    if name not in nodes:
        raise ValueError(f"node {name}: found no such node in the fleet, expected one of {', '.join(sorted(nodes))}")
    return nodes[name]


def _by_whom(node: KubernetesObject) -> str:
    note = _annotations(node).get(CORDONED)
    if note is None:
        return ", not by Slipway"
    try:
        author = parsing.value(note)
        return f", by {author['who']}: {author['why']}"
    except (ValueError, KeyError, TypeError):  # another client may have written the annotation
        return f", with the note {note[:200]!r}"


def _annotations(node: KubernetesObject) -> dict[str, str]:
    return node["metadata"].get("annotations") or {}
