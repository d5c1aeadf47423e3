"""Outcomes of a snapshot's checks, and the checks that are the same for texts and for images."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from assets.datasets.documents import document_table
from recipes.dataset import DatasetRecipe
from resources import warehouse
from trainer.data.shards import SnapshotManifest


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check."""

    passed: bool
    metadata: dict[str, Any] = field(default_factory=dict)
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR

    @property
    def blocks(self) -> bool:
        """Whether the dataset must not point at the snapshot."""
        return not self.passed and self.severity is dg.AssetCheckSeverity.ERROR


def table_of(snapshot: SnapshotManifest, durable: Path) -> Path:
    """The documents table that a snapshot was made from."""
    return document_table.path(durable, snapshot.documents["blake3"])


def splits_are_disjoint(table: Path) -> Outcome:
    """Whether no document of a documents table is kept in both splits."""
    shared = warehouse.documents_in_both_splits(table)
    return Outcome(shared == 0, {"documents_in_both": shared})


def drift_is_small(
    recipe: DatasetRecipe,
    made: SnapshotManifest,
    parent: SnapshotManifest | None,
    durable: Path,
    drift: Callable[[Path, Path], dict[str, float]],
) -> Outcome:
    """Whether every measure of `drift`, from the parent's documents table to this one, is within the recipe's limit.

    A first snapshot has no parent, and passes.
    """
    if parent is None or not table_of(parent, durable).exists():
        return Outcome(True, {"note": "there is no parent snapshot to compare with"})
    found = drift(table_of(parent, durable), table_of(made, durable))
    return Outcome(max(found.values()) <= recipe.checks.drift, {**found, "limit": recipe.checks.drift})
