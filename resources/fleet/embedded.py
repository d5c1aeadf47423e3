"""The embedded fleet: several nodes on one machine, each a folder, so that losing a node is a thing one can do.

A node that died is marked lost and takes a while to come back, as a machine that reboots does.
``python -m resources.fleet.embedded kill NODE`` kills one.
"""

import argparse
import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from resources.fleet.protocol import Node
from resources.home import Home
from resources.launcher.protocol import Unavailable
from trainer import atomic, processes

FLEET_VARIABLE = "SLIPWAY_FLEET"
"""In the environment of a node's processes: the fleet's folder."""
NODE_VARIABLE = "SLIPWAY_NODE"
"""In the environment of a node's processes: the node's name."""


@dataclass(frozen=True)
class EmbeddedFleet:
    """Nodes with folders ``<folder>/<node>/``; a lost one is away for `reboot_seconds`."""

    folder: Path
    names: tuple[str, ...]
    reboot_seconds: float
    scheduled: ClassVar = False

    def nodes(self, now: float | None = None) -> list[Node]:
        """All nodes at `now`, seconds since the epoch. Raises Unavailable when a mark cannot be read."""
        at = time.time() if now is None else now
        return [self._node(name, at) for name in sorted(self.names)]

    def mark_lost(self, node: str, reason: str, now: float | None = None) -> None:
        """Say that the node died at `now`. Raises OSError when that cannot be written."""
        mark_lost(self.folder, node, reason, now)

    def restore(self, node: str) -> None:
        """Take the node back before its time."""
        _mark(self.folder, node).unlink(missing_ok=True)

    def _node(self, name: str, now: float) -> Node:
        try:
            mark = json.loads(_mark(self.folder, name).read_bytes())
        except FileNotFoundError:
            return Node(name, ready=True)
        except OSError as error:
            raise Unavailable(f"node {name}: its mark cannot be read: {error}") from error
        if now - mark["at"] >= self.reboot_seconds:
            return Node(name, ready=True)
        return Node(name, ready=False, reason=mark["reason"], since=mark["at"])


def mark_lost(folder: Path, node: str, reason: str, now: float | None = None) -> None:
    """Say in the fleet at `folder` that the node died at `now`. Raises OSError."""
    at = time.time() if now is None else now
    atomic.replace(_mark(folder, node), atomic.readable_json({"at": at, "reason": reason}))


def node_environment(folder: Path, node: str) -> dict[str, str]:
    """What marks a process as one of the node's; every process below inherits it."""
    return {FLEET_VARIABLE: str(folder.resolve()), NODE_VARIABLE: node}


def kill(folder: Path, node: str) -> list[int]:
    """Kill the node as a power cut would; return the pids that were sent SIGKILL.

    Only its node processes are: that all below them dies too is theirs to guarantee.
    """
    members = set(processes.carrying(node_environment(folder, node)))
    heads = [pid for pid in members if processes.parent_of(pid) not in members]
    for pid in heads:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    mark_lost(folder, node, "killed by hand")
    return heads


def _mark(folder: Path, node: str) -> Path:
    return folder / node / "lost.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m resources.fleet.embedded", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Home.of().nodes, help="the fleet's folder (%(default)s)")
    verbs = parser.add_subparsers(required=True)
    verbs.add_parser("kill", help="kill a node, and all that runs on it").add_argument("node")
    arguments = parser.parse_args()
    if not (arguments.folder / arguments.node).is_dir():
        parser.error(f"no node {arguments.node!r} in {arguments.folder}")
    killed = kill(arguments.folder, arguments.node)
    print(f"node {arguments.node} is lost; killed: {', '.join(map(str, killed)) or 'nothing was running on it'}")


if __name__ == "__main__":
    main()
