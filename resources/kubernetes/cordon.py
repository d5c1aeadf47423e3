"""Cordon: the one way in which Slipway takes a node out of service, or back into it.

A person decides: nothing calls this by itself. Without `apply` it changes nothing and says what it would do. Each act
is recorded in the durable tier before it is done, and on the node with who did it and why.
``python -m resources.kubernetes.cordon NODE --why WORDS`` does it by hand.
"""

import argparse
import getpass
import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from resources import platform
from resources.kubernetes.client import Client
from resources.kubernetes.objects import NODES, Object
from resources.kubernetes.reader import Writer
from resources.launcher.protocol import Unavailable
from resources.tiers import Tiers
from trainer import atomic, lock

FORMAT = "slipway.cordon/1"
CORDONED = "slipway/cordoned"
"""Annotation of a node that Slipway cordoned: by whom, why and when, as JSON."""
EXEMPT = "slipway/cordon"
"""Label of a node; with the value `never`, it is left alone."""
SHARE = 0.1
"""Of the fleet's nodes, no more than this may be cordoned at once, by whomever; one always may."""
FOLDER = "cordons"
"""In the durable tier: a file for each act, create-only."""


@dataclass(frozen=True)
class Act:
    """Something done to a node, or, with `applied` false, what would be."""

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
    """Acts on the nodes of one fleet: those with these labels."""

    cluster: Writer
    labels: dict[str, str]
    durable: Path

    def cordon(self, node: str, who: str, why: str, apply: bool = False) -> Act:
        """Keep new work away from the node; what runs there runs on.

        Raises ValueError, with nothing changed, when that is not possible or not allowed; Unavailable.
        """
        act = Act("cordon", node, who, why, time.time(), apply)
        with lock.exclusive(self.durable / FOLDER):
            nodes = self._nodes()
            found = _found(nodes, node)
            _must_be_allowed(found, list(nodes.values()))
            note = atomic.canonical_json({"who": who, "why": why, "at": act.at}).decode()
            return self._do(act, found, unschedulable=True, note=note)

    def uncordon(self, node: str, who: str, why: str, apply: bool = False) -> Act:
        """Let new work come to the node that was cordoned here. Raises as `cordon`."""
        act = Act("uncordon", node, who, why, time.time(), apply)
        with lock.exclusive(self.durable / FOLDER):
            found = _found(self._nodes(), node)
            if not found["spec"].get("unschedulable"):
                raise ValueError(f"node {node}: it is not cordoned")
            if CORDONED not in _annotations(found):
                raise ValueError(f"node {node}: it was not cordoned by Slipway; kubectl uncordon {node} takes it back")
            return self._do(act, found, unschedulable=None, note=None)

    def _do(self, act: Act, found: Object, unschedulable: bool | None, note: str | None) -> Act:
        """Record the act and do it to the node as it was found; when that fails, record so."""
        if not act.applied:
            return act
        change = {
            "metadata": {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": {CORDONED: note}},
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
        record = {"format": FORMAT, **asdict(act), **({"error": error} if error else {})}
        path = self.durable / FOLDER / f"{when}-{act.node}.json"
        if not atomic.create_only(path, atomic.readable_json(record)):
            raise ValueError(f"{path}: is there already; nothing was done")

    def _nodes(self) -> dict[str, Object]:
        return {node["metadata"]["name"]: node for node in self.cluster.list(NODES, self.labels)}


def limit(nodes: int) -> int:
    """How many of a fleet's nodes may be cordoned at once."""
    return max(1, int(nodes * SHARE))


def acts(durable: Path) -> list[dict[str, Any]]:
    """The records of all acts, the first one first."""
    return [json.loads(path.read_bytes()) for path in sorted((durable / FOLDER).glob("*.json"))]


def _must_be_allowed(node: Object, fleet: list[Object]) -> None:
    """Raise ValueError unless the node may be cordoned now."""
    name = node["metadata"]["name"]
    if node["spec"].get("unschedulable"):
        raise ValueError(f"node {name}: it is cordoned already{_by_whom(node)}")
    if node["metadata"].get("labels", {}).get(EXEMPT) == "never":
        raise ValueError(f"node {name}: its label {EXEMPT}=never keeps it from being cordoned")
    cordoned = [each["metadata"]["name"] for each in fleet if each["spec"].get("unschedulable")]
    if len(cordoned) >= limit(len(fleet)):
        raise ValueError(
            f"node {name}: {', '.join(cordoned)} are cordoned already, and of {len(fleet)} nodes no more than "
            f"{limit(len(fleet))} may be: take one back first, or cordon it with kubectl"
        )


def _found(nodes: dict[str, Object], name: str) -> Object:
    if name not in nodes:
        raise ValueError(f"node {name}: there is no such node in the fleet; there are {', '.join(sorted(nodes))}")
    return nodes[name]


def _by_whom(node: Object) -> str:
    note = _annotations(node).get(CORDONED)
    if note is None:
        return ", not by Slipway"
    said = json.loads(note)
    return f", by {said['who']}: {said['why']}"


def _annotations(node: Object) -> dict[str, str]:
    return node["metadata"].get("annotations") or {}


def main(arguments: list[str] | None = None) -> int:
    """1 and one message when it is not possible."""
    options = _parser().parse_args(arguments)
    try:
        if options.platform is None:
            raise ValueError(f"expected --platform FILE, or {platform.VARIABLE} in the environment")
        fleet = _fleet(platform.load(options.platform))
        act = fleet.uncordon if options.back else fleet.cordon
        print(act(options.node, options.who, options.why, options.apply))
    except (ValueError, Unavailable, OSError) as error:
        print(f"cordon: {error}", file=sys.stderr)
        return 1
    return 0


def _fleet(settings: platform.Platform) -> Cordon:
    compute = settings.compute
    client = Client(compute.kubeconfig, compute.context)
    return Cordon(client, dict(compute.cluster.node_selector), Tiers(**settings.tiers.model_dump()).durable_path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m resources.kubernetes.cordon", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("node", metavar="NODE")
    parser.add_argument("--why", required=True, metavar="WORDS", help="the reason, for whoever finds it so")
    parser.add_argument("--who", default=getpass.getuser(), help="who decided that (%(default)s)")
    parser.add_argument("--back", action="store_true", help="uncordon it")
    parser.add_argument("--apply", action="store_true", help="do it, and do not only say what would be done")
    parser.add_argument(
        "--platform", type=Path, default=platform.named(), metavar="FILE", help="the platform's settings (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
