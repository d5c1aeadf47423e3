"""Receipts of staging: which nodes hold a snapshot, on record on the durable tier, so that no node need be asked.

``<durable>/staged/<snapshot>/<node>.json`` is written after a staging and removed when the node lost the snapshot or
was lost itself. It is a hint for placement alone: what a node really holds it verifies before it reads.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec, listing, paths


@dataclass(frozen=True)
class Receipt:
    """That a node holds a snapshot, or its part of one."""

    at: float
    bytes: int
    """Of the node's part."""


def note(durable: Path, snapshot: str, node: str, bytes: int) -> None:
    """Say that a node holds a snapshot, whose part there has so many bytes."""
    codec.replace(_receipt(durable, snapshot, node), Receipt(time.time(), bytes))


def holders(durable: Path, snapshot: str) -> frozenset[str]:
    """The nodes that hold a snapshot. Raises OSError when that cannot be read."""
    return frozenset(listing.names_if_there(paths.receipts(durable, snapshot), ".json"))


def forget(durable: Path, node: str, snapshots: Iterable[str] | None = None) -> None:
    """Say that a node holds these snapshots no longer; by default none at all: the node is lost. Raises OSError."""
    for snapshot in listing.names_if_there(durable / paths.STAGED) if snapshots is None else snapshots:
        _receipt(durable, snapshot, node).unlink(missing_ok=True)


def _receipt(durable: Path, snapshot: str, node: str) -> Path:
    return paths.receipts(durable, snapshot) / f"{node}.json"
