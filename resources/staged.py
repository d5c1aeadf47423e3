"""Receipts of staging: which nodes hold a snapshot, as the durable tier says without asking a node.

``<durable>/staged/<snapshot>/<node>.json`` is written after a staging and removed when the node lost the snapshot or
was lost itself. It is a hint for placement alone: what a node really holds it verifies before it reads.
"""

import time
from collections.abc import Iterable
from pathlib import Path

from trainer import atomic, digest


def note(durable: Path, snapshot: str, node: str, bytes: int) -> None:
    """Say that a node holds a snapshot, whose part there has so many bytes."""
    atomic.replace(_receipt(durable, snapshot, node), atomic.readable_json({"at": time.time(), "bytes": bytes}))


def holders(durable: Path, snapshot: str) -> frozenset[str]:
    """The nodes that hold a snapshot."""
    folder = durable / "staged" / digest.checked(snapshot)
    return frozenset(path.name.removesuffix(".json") for path in folder.glob("[!.]*.json"))


def forget(durable: Path, node: str, snapshots: Iterable[str] | None = None) -> None:
    """Say that a node holds these snapshots no longer; by default none at all: the node is lost."""
    everything = (path.name for path in (durable / "staged").glob("[!.]*"))
    for snapshot in everything if snapshots is None else snapshots:
        _receipt(durable, snapshot, node).unlink(missing_ok=True)


def _receipt(durable: Path, snapshot: str, node: str) -> Path:
    return durable / "staged" / digest.checked(snapshot) / f"{node}.json"
