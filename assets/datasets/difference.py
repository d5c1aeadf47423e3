"""Difference: what became of documents, tokens and shards from one snapshot of a dataset to another."""

from dataclasses import dataclass
from pathlib import Path

from assets.datasets.documents import table_path
from resources import warehouse
from resources.warehouse import Changes
from trainer import images, shards
from trainer.snapshots import Snapshot


@dataclass(frozen=True)
class Difference:
    """From one snapshot to another."""

    documents: Changes | None
    """None when a documents table is gone."""
    tokens: tuple[int, int]
    """Before and after; images have none."""
    shards: int
    """Of the later snapshot."""
    shared_shards: int
    """Of those, how many the earlier one has too."""
    new_bytes: int
    """Of the shards that it has not: what a node that holds the earlier one must copy."""
    same_tokenizer: bool


def difference(old: Snapshot, new: Snapshot, durable: Path) -> Difference:
    """What `new` has otherwise than `old`; any two snapshots can be compared."""
    before, after = (table_path(durable, each.documents["blake3"]) for each in (old, new))
    by = ("blake3", "label") if isinstance(old, images.Snapshot) and isinstance(new, images.Snapshot) else ("blake3",)
    known = {shard.blake3 for shard in old.shards()}
    fresh = [shard for shard in new.shards() if shard.blake3 not in known]
    return Difference(
        documents=warehouse.changes(before, after, by) if before.exists() and after.exists() else None,
        tokens=(_tokens(old), _tokens(new)),
        shards=len(new.shards()),
        shared_shards=len(new.shards()) - len(fresh),
        new_bytes=sum(shard.bytes for shard in fresh),
        same_tokenizer=_tokenizer(old) == _tokenizer(new),
    )


def _tokens(snapshot: Snapshot) -> int:
    return sum(split.tokens for split in snapshot.splits.values()) if isinstance(snapshot, shards.Snapshot) else 0


def _tokenizer(snapshot: Snapshot) -> shards.Tokenizer | None:
    return snapshot.tokenizer if isinstance(snapshot, shards.Snapshot) else None
