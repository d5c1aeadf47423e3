"""Difference: the changes of documents, tokens and shards from one snapshot of a dataset to another.

The documents and their bytes are also compared by rule, by language and by source.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from slipway.assets.datasets.documents import document_table
from slipway.resources import warehouse
from slipway.resources.warehouse import Changes
from slipway.trainer.data import images, shards
from slipway.trainer.data.snapshots import Snapshot

TOP = "."
"""The source of all files outside folders; otherwise each of them would be a source of its own."""
GROUP_KINDS = {
    "rule": ("coalesce(removed, '')", "removed IS NOT NULL"),
    "language": ("coalesce(language, 'unknown')", "removed IS NULL"),
    "source": (f"CASE WHEN contains(name, '/') THEN split_part(name, '/', 1) ELSE '{TOP}' END", "removed IS NULL"),
}
"""For each kind of group, SQL for a document's group and for the documents that count: those that a rule left out, or
the kept ones."""
COUNTED = "SELECT {group}, count(*), coalesce(sum(bytes), 0)::BIGINT FROM read_parquet($table) WHERE {which} GROUP BY 1"


@dataclass(frozen=True)
class Amount:
    """Documents and their bytes of cleaned text, or of pixels."""

    documents: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class GroupChange:
    """One rule, language or source in two tables."""

    name: str
    before: Amount
    now: Amount


@dataclass(frozen=True)
class SnapshotDifference:
    """The difference of one snapshot from an earlier one."""

    documents: Changes | None
    """The changes of documents; None if a documents table is gone."""
    tokens: tuple[int, int]
    """The tokens before and after; 0 for images."""
    shards: int
    """The shards of the later snapshot."""
    shared_shards: int
    """The number of them that the earlier snapshot also has."""
    new_bytes: int
    """The bytes of the other shards, which a node with the earlier snapshot must copy."""
    same_tokenizer: bool
    groups: dict[str, tuple[GroupChange, ...]]
    """The groups that differ, by `rule` (documents left out), `language` and `source` (documents kept)."""


def difference(old: Snapshot, new: Snapshot, durable: Path) -> SnapshotDifference:
    """Compare any two snapshots."""
    before, after = (document_table.path(durable, snapshot.documents["blake3"]) for snapshot in (old, new))
    by = (
        ("blake3", "label")
        if isinstance(old, images.ImageSnapshot) and isinstance(new, images.ImageSnapshot)
        else ("blake3",)
    )
    known = {shard.blake3 for shard in old.shards()}
    fresh = [shard for shard in new.shards() if shard.blake3 not in known]
    there = before.exists() and after.exists()
    return SnapshotDifference(
        documents=warehouse.changes(before, after, by) if there else None,
        tokens=(_tokens(old), _tokens(new)),
        shards=len(new.shards()),
        shared_shards=len(new.shards()) - len(fresh),
        new_bytes=sum(shard.bytes for shard in fresh),
        same_tokenizer=_tokenizer(old) == _tokenizer(new),
        groups={kind: group_changes(kind, before, after) for kind in GROUP_KINDS} if there else {},
    )


def metadata(parent: shards.SnapshotManifest, differences: SnapshotDifference) -> dict[str, Any]:
    """The metadata of a snapshot's difference from its parent."""
    described: dict[str, Any] = {
        "parent": parent.sha256,
        "shared_shards": differences.shared_shards,
        "new_shard_bytes": differences.new_bytes,
    }
    if isinstance(parent, shards.TextSnapshot):
        described["tokens_added"] = differences.tokens[1] - differences.tokens[0]
    if differences.documents is not None:
        changes = differences.documents
        described |= {
            "documents_added": changes.added,
            "documents_removed": changes.removed,
            "documents_changed": changes.changed,
        }
    return described


def _tokens(snapshot: Snapshot) -> int:
    if not isinstance(snapshot, shards.TextSnapshot):
        return 0
    return sum(split.tokens for split in snapshot.splits.values())


def _tokenizer(snapshot: Snapshot) -> shards.TokenizerRecord | None:
    if not isinstance(snapshot, shards.TextSnapshot):
        return None
    return snapshot.tokenizer


def group_amounts(kind: str, table: Path) -> Mapping[str, Amount]:
    """The amounts of each group of a kind, by name; empty if the table does not have the column."""
    group, which = GROUP_KINDS[kind]
    with warehouse.connect() as connection:
        try:
            rows = connection.execute(COUNTED.format(group=group, which=which), {"table": str(table)}).fetchall()
        except duckdb.BinderException:  # images have no language
            return {}
    return {name: Amount(documents, size) for name, documents, size in rows}


def group_changes(kind: str, before: Path, now: Path) -> tuple[GroupChange, ...]:
    """The groups that differ between two tables, those with the largest change of documents first."""
    old, new = (group_amounts(kind, table) for table in (before, now))
    changes = [GroupChange(name, old.get(name, Amount()), new.get(name, Amount())) for name in old.keys() | new.keys()]
    differing = [change for change in changes if change.before != change.now]
    return tuple(
        sorted(differing, key=lambda change: (-abs(change.now.documents - change.before.documents), change.name))
    )
