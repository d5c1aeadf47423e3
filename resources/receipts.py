"""Staging receipts: records on the durable tier of which nodes hold a snapshot, so that nobody has to ask the nodes.

``<durable>/staged/<snapshot>/<node>.json`` is written after a staging, and removed when the node has lost the snapshot
or is lost itself. It is only a hint for placement: a node verifies its data before it reads them.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec, listing, paths


@dataclass(frozen=True)
class Receipt:
    """The record that a node holds a snapshot, or its part of it."""

    at: float
    bytes: int
    """The size of the node's part."""


def note(durable: Path, snapshot: str, node: str, bytes: int) -> None:
    """Record that a node holds a snapshot, or `bytes` bytes of it."""
    codec.replace(_receipt(durable, snapshot, node), Receipt(time.time(), bytes))


def holders(durable: Path, snapshot: str) -> frozenset[str]:
    """The nodes that hold a snapshot. Raises OSError if the records cannot be read."""
    return frozenset(listing.names_if_there(paths.receipts(durable, snapshot), ".json"))


def forget(durable: Path, node: str, snapshots: Iterable[str] | None = None) -> None:
    """Remove a node's receipts for these snapshots; by default all of them, since the node is lost. Raises OSError."""
    if snapshots is None:
        snapshots = listing.names_if_there(durable / paths.STAGED)
    for snapshot in snapshots:
        _receipt(durable, snapshot, node).unlink(missing_ok=True)


def _receipt(durable: Path, snapshot: str, node: str) -> Path:
    return paths.receipts(durable, snapshot) / f"{node}.json"
