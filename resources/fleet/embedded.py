"""The embedded fleet: several nodes on one machine, each a folder, so that people and tests can kill a node.

A dead node is marked as lost, and comes back after a while, like a machine that reboots.
`slipway nodes kill NODE` kills one.
"""

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.protocol import NODE_VARIABLE, Node
from slipway.trainer.base import codec, processes

FLEET_VARIABLE = "SLIPWAY_FLEET"
"""The variable of a node's processes with the fleet's folder."""
REBOOT_SECONDS = 60.0
"""How long a killed node stays away by default."""


@dataclass(frozen=True)
class LossMark:
    """lost.json of a node: when it died, in seconds since the epoch, and why."""

    at: float
    reason: str


@dataclass(frozen=True)
class EmbeddedFleet:
    """Nodes with folders ``<folder>/<node>/``; a lost one is away for `reboot_seconds`."""

    folder: Path
    names: tuple[str, ...]
    reboot_seconds: float
    scheduled: ClassVar = False

    def nodes(self, now: float | None = None) -> list[Node]:
        """All nodes at `now`, in seconds since the epoch. Raises Unavailable if a mark cannot be read."""
        at = time.time() if now is None else now
        return [self._node(name, at) for name in sorted(self.names)]

    def mark_lost(self, node: str, reason: str, now: float | None = None) -> None:
        """Mark the node as dead since `now`. Raises OSError if the mark cannot be written."""
        mark_lost(self.folder, node, reason, now)

    def restore(self, node: str) -> None:
        """Remove the mark, so that the node is back at once."""
        _mark(self.folder, node).unlink(missing_ok=True)

    def _node(self, name: str, now: float) -> Node:
        try:
            mark = codec.read_if_there(_mark(self.folder, name), LossMark)
        except (OSError, codec.UndecodableRecord) as error:
            raise Unavailable(f"node {name}: its mark cannot be read: {error}") from error
        if mark is None or now - mark.at >= self.reboot_seconds:
            return Node(name, ready=True)
        return Node(name, ready=False, reason=mark.reason, since=mark.at)


def mark_lost(folder: Path, node: str, reason: str, now: float | None = None) -> None:
    """Mark the node as dead since `now` in the fleet at `folder`. Raises OSError."""
    at = time.time() if now is None else now
    codec.replace(_mark(folder, node), LossMark(at, reason))


def lost_at(folder: Path, node: str) -> float | None:
    """When the node was marked as dead, in seconds since the epoch; None without a readable mark."""
    mark = codec.read_if_whole(_mark(folder, node), LossMark)
    return mark.at if mark else None


def node_environment(folder: Path, node: str) -> dict[str, str]:
    """The variables that identify the processes of a node; descendants inherit them."""
    return {FLEET_VARIABLE: str(folder.resolve()), NODE_VARIABLE: node}


def kill(folder: Path, node: str) -> list[int]:
    """Kill the node as a power cut would; returns the pids that received SIGKILL.

    Only the node processes receive it, since each guarantees that its descendants die with it.
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
