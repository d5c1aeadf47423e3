"""Losses: the losses of a snapshot compared with its parent, by rule, language and source.

A total hides such losses: a rule that suddenly leaves out a third of one source, or a source that is empty one night,
hardly changes the bytes of a large corpus. Each check shows the values of every group that it compared.
"""

from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from slipway.assets.datasets.snapshots.difference import group_amounts
from slipway.assets.datasets.snapshots.outcomes import Outcome, table_of
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import warehouse
from slipway.serving.languages import UNKNOWN
from slipway.trainer.data.shards import SnapshotManifest

CHECKS = {
    "removals_are_steady": "The share of documents that a rule leaves out has changed, compared with the parent, by no "
    "more than the recipe allows.",
    "languages_are_kept": "No language has lost more of its text, compared with the parent, than the recipe allows.",
    "sources_are_kept": "No source (a top-level folder) has lost more of its bytes, compared with the parent, than the "
    "recipe allows.",
}
SMALLEST = 0.01
"""The smallest share of the parent's bytes for a comparison, because small languages and sources vary by chance."""
MAX_ROWS = 20
"""The most groups in a table of values, those with the largest losses first."""
NO_PARENT = Outcome(True, {"note": "there is no parent snapshot to compare with"})


@dataclass(frozen=True)
class Loss:
    """One rule, language or source in the parent and now: shares of the documents, or bytes."""

    name: str
    before: float
    now: float
    figure: float
    """The change of a rule's share, or the lost share of a group's bytes; below 0 for growth."""


def removals_are_steady(
    recipe: DatasetRecipe, snapshot: SnapshotManifest, parent: SnapshotManifest | None, durable: Path
) -> Outcome:
    """Check that no rule's share of left-out documents differs from the parent's by more than `checks.removal`. A first
    snapshot passes."""
    tables = _tables(snapshot, parent, durable)
    if tables is None:
        return NO_PARENT
    before, now = (_removal_shares(table) for table in tables)
    shifts = [
        Loss(rule, before.get(rule, 0.0), now.get(rule, 0.0), abs(now.get(rule, 0.0) - before.get(rule, 0.0)))
        for rule in before.keys() | now.keys()
    ]
    return _outcome("rule", shifts, recipe.checks.removal, "checks.removal", "of the documents are left out by")


def groups_are_kept(
    group: str, recipe: DatasetRecipe, snapshot: SnapshotManifest, parent: SnapshotManifest | None, durable: Path
) -> Outcome:
    """Whether no language, or no source, lost a larger share of its bytes than `checks.language` or `checks.source`.

    Only those are compared that had 1 % of the parent's bytes or more; texts of no known language are of no language. A
    first snapshot passes.
    """
    tables = _tables(snapshot, parent, durable)
    if tables is None:
        return NO_PARENT
    before, now = (_bytes(group, table) for table in tables)
    least = SMALLEST * sum(before.values())
    lost = [
        Loss(name, size, now.get(name, 0), 1 - now.get(name, 0) / size)
        for name, size in before.items()
        if size >= max(least, 1) and (group, name) != ("language", UNKNOWN)
    ]
    return _outcome(group, lost, getattr(recipe.checks, group), f"checks.{group}", "bytes are of")


def _tables(snapshot: SnapshotManifest, parent: SnapshotManifest | None, durable: Path) -> tuple[Path, Path] | None:
    """The documents tables of the parent and of the snapshot; None if the parent has none."""
    if parent is None or not table_of(parent, durable).exists():
        return None
    return table_of(parent, durable), table_of(snapshot, durable)


def _outcome(noun: str, losses: list[Loss], limit: float, field: str, verb: str) -> Outcome:
    ordered = sorted(losses, key=lambda loss: (-loss.figure, loss.name))
    beyond = [loss for loss in ordered if loss.figure > limit]
    largest = "; ".join(
        f"{_amount(loss.now)} {verb} {noun} {loss.name}, {_amount(loss.before)} before" for loss in beyond[:5]
    )
    reason = f"{largest}: more than {field} ({limit:g}) allows; where that is meant, raise it for one build"
    return Outcome(
        not beyond,
        {
            "limit": limit,
            "largest": ordered[0].figure if ordered else 0.0,
            f"{noun}s": dg.MetadataValue.md(_table(noun, ordered)),
        },
        remedy=reason if beyond else "",
    )


def _table(noun: str, losses: list[Loss]) -> str:
    """The values in Markdown, the largest first."""
    heading = "moved by" if noun == "rule" else "lost"
    rows = [f"| {noun} | before | now | {heading} |", "|---|---:|---:|---:|"]
    rows += [
        f"| {loss.name} | {_amount(loss.before)} | {_amount(loss.now)} | {loss.figure:.1%} |"
        for loss in losses[:MAX_ROWS]
    ]
    return "\n".join(rows)


def _amount(value: float) -> str:
    """A share in percent, or bytes."""
    return f"{value:.1%}" if isinstance(value, float) else f"{value:,}"


def _removal_shares(table: Path) -> dict[str, float]:
    """The share of all documents that each rule left out."""
    counts = {rule: amount.documents for rule, amount in group_amounts("rule", table).items()}
    total = sum(counts.values()) + warehouse.kept_total(table).documents
    return {rule: count / total for rule, count in counts.items()}


def _bytes(group: str, table: Path) -> dict[str, int]:
    """The bytes of kept documents in each group."""
    return {name: amount.bytes for name, amount in group_amounts(group, table).items()}
