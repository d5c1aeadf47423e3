"""Outcomes of a snapshot's checks, the checks that are the same for texts and for images, and a team's own checks.

A team's own checks are queries of a recipe over the documents table, each of which holds when it gives no row.
`documents` is the table of the new snapshot, `parent` that of the snapshot before it, which has no rows when there is
none. A query that cannot be answered is refused before anything is read. Of an answer, a million rows are counted at
most.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from slipway.assets.datasets.building.build_log import BuildLog, BuildPhase
from slipway.assets.datasets.documents import document_table
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import user_queries, warehouse
from slipway.trainer.data.shards import SnapshotManifest

MAX_ROWS = 5
"""The number of rows of a failed check's query to show."""
PREFIX = "sql_"
"""The prefix of the names of a team's own checks."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check."""

    passed: bool
    metadata: dict[str, Any] = field(default_factory=dict)
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    remedy: str = ""
    """Advice for a person; empty if the values are enough."""

    @property
    def blocks(self) -> bool:
        """Whether the dataset must not point at the snapshot."""
        return not self.passed and self.severity is dg.AssetCheckSeverity.ERROR


def in_turn(checks: Sequence[Callable[[], Outcome]], log: BuildLog) -> list[Outcome]:
    """Run the checks in their order, and log the progress."""
    phase = BuildPhase(log, "checking", len(checks), "checks")
    outcomes = []
    for check in checks:
        outcomes.append(check())
        phase.add(1)
    return outcomes


def refusal(dataset: str, checks: Iterable[str], outcomes: Iterable[Outcome]) -> str:
    """A sentence on why the dataset does not point at its new snapshot; empty if it does."""
    blocking = [(name, outcome) for name, outcome in zip(checks, outcomes, strict=True) if outcome.blocks]
    reasons = [f"{name}: {outcome.remedy or _figures(outcome.metadata)}" for name, outcome in blocking]
    if not reasons:
        return ""
    return f"dataset {dataset}: its new snapshot does not pass {'; '.join(reasons)}"


def _figures(metadata: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in metadata.items())


def no_split_is_empty(recipe: DatasetRecipe, documents: Mapping[str, int], metadata: dict[str, Any]) -> Outcome:
    """Check that no split is empty, with advice if one is; `documents` are numbers by split."""
    empty = [name for name in documents if not documents[name]]
    total = sum(documents.values())
    share = recipe.split
    if not empty:
        return Outcome(True, metadata)
    if not total:
        return Outcome(False, metadata, remedy="none of its documents is kept")
    if empty == ["validation"]:
        enough = max(share.validation, min(0.5, MIN_DOCUMENTS / max(total, 1)))
        divide = (
            ", or name in reading.separator what stands between documents in a file" if recipe.images is None else ""
        )
        remedy = (
            f"raise split.validation, found {share.validation:g}, for example to {enough:.2g}, or add documents{divide}"
        )
    else:
        remedy = f"add documents, or lower split.validation, found {share.validation:g}"
    return Outcome(
        False, metadata, remedy=f"none of its {total} documents is in the {' or '.join(empty)} split: {remedy}"
    )


MIN_DOCUMENTS = 10
"""The fewest validation documents for a small corpus, because fewer give no interval for the comparison of models."""


def table_of(snapshot: SnapshotManifest, durable: Path) -> Path:
    """The documents table that a snapshot was made from."""
    return document_table.path(durable, snapshot.documents["blake3"])


def splits_are_disjoint(table: Path) -> Outcome:
    """Check that no document is kept in both splits."""
    shared = warehouse.documents_in_both_splits(table)
    return Outcome(shared == 0, {"documents_in_both": shared})


def drift_is_small(
    recipe: DatasetRecipe,
    snapshot: SnapshotManifest,
    parent: SnapshotManifest | None,
    durable: Path,
    drift: Callable[[Path, Path], dict[str, float]],
) -> Outcome:
    """Check that every measure of `drift` from the parent's documents table to this one is within the recipe's limit.

    A first snapshot has no parent, and passes.
    """
    if parent is None or not table_of(parent, durable).exists():
        return Outcome(True, {"note": "there is no parent snapshot to compare with"})
    drifts = drift(table_of(parent, durable), table_of(snapshot, durable))
    return Outcome(max(drifts.values()) <= recipe.checks.drift, {**drifts, "limit": recipe.checks.drift})


def enough_is_kept(recipe: DatasetRecipe, table: Path) -> Outcome:
    """Check that the share of readable documents that was left out is within the recipe's limit."""
    removals = [
        removal for removal in warehouse.removals(table) if not removal.reason.startswith(("unreadable: ", "no text: "))
    ]
    remaining = warehouse.kept_total(table).documents
    left_out = sum(removal.documents for removal in removals)
    share = left_out / max(remaining + left_out, 1)
    by_reason = {removal.reason: removal.documents for removal in removals}
    limit = recipe.checks.left_out
    counts = ", ".join(f"{number} by {reason}" for reason, number in by_reason.items())
    message = (
        f"cleaning left out {left_out} of {remaining + left_out} documents ({counts}), expected {limit:.0%} or less"
    )
    metadata = {"share_left_out": share, "limit": limit, "left_out": by_reason}
    return Outcome(share <= limit, metadata, remedy=message if share > limit else "")


def volume_is_kept(
    recipe: DatasetRecipe, snapshot: SnapshotManifest, parent: SnapshotManifest | None, durable: Path
) -> Outcome:
    """Check that the snapshot has not shrunk, compared with its parent, by more than the recipe allows.

    A first snapshot has no parent, and passes.
    """
    if parent is None or not table_of(parent, durable).exists():
        return Outcome(True, {"note": "there is no parent snapshot to compare with"})
    before, after = (warehouse.kept_total(table_of(version, durable)) for version in (parent, snapshot))
    shrinkage = 1 - after.bytes / max(before.bytes, 1)
    metadata = {
        "shrinkage": shrinkage,
        "limit": recipe.checks.shrinkage,
        "bytes_before": before.bytes,
        "bytes": after.bytes,
        "documents_before": before.documents,
        "documents": after.documents,
    }
    return Outcome(shrinkage <= recipe.checks.shrinkage, metadata)


def own_checks(recipe: DatasetRecipe) -> dict[str, str]:
    """The descriptions of the recipe's own checks, by name."""
    return {PREFIX + name: f"This query returns no row: {query}" for name, query in recipe.checks.queries.items()}


def refuse_wrong_queries(recipe: DatasetRecipe, table: pa.Schema) -> None:
    """Raise ValueError, with the recipe's field, for a query that is invalid for a table with these columns."""
    for name, query in recipe.checks.queries.items():
        _query_result(name, query, {"documents": None, "parent": None}, table)


def own_outcomes(
    recipe: DatasetRecipe, snapshot: SnapshotManifest, parent: SnapshotManifest | None, durable: Path, table: pa.Schema
) -> list[Outcome]:
    """The outcomes of the recipe's own checks, in their order, with the first rows of failed ones."""
    before = None if parent is None else table_of(parent, durable)
    tables = {
        "documents": table_of(snapshot, durable),
        "parent": before if before is not None and before.exists() else None,
    }
    answers = [_query_result(name, query, tables, table) for name, query in recipe.checks.queries.items()]
    return [Outcome(not rows, {"rows": rows, "first": first} if rows else {"rows": 0}) for rows, first in answers]


def _query_result(
    name: str, query: str, tables: Mapping[str, Path | None], columns: pa.Schema
) -> tuple[int, list[dict[str, str]]]:
    try:
        answer = user_queries.over_files(query, tables, columns, MAX_ROWS)
    except ValueError as error:
        raise ValueError(f"checks.queries.{name}: {error}") from None
    return answer.row_count, [dict(zip(answer.columns, map(str, row), strict=True)) for row in answer.rows]
