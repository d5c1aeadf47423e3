"""The holdout filter: it removes validation documents that a training's initial weights were trained on.

A validation document that the weights have already learnt is not held out. So a training that starts from a checkpoint
uses a filtered snapshot, without the validation documents that occur in the train split of a snapshot that led to this
checkpoint. The filtered snapshot shares all other shards with the dataset's current snapshot. The field
`source.unseen` of its manifest says what was left out and why.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slipway.assets.datasets.building.scratch_dir import writing_content
from slipway.assets.datasets.snapshots.outcomes import table_of
from slipway.recipes.initial import InitSection
from slipway.resources import warehouse
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import all_trainings
from slipway.trainer.base.paths import CHECKPOINTS
from slipway.trainer.checkpoint.disk import progress
from slipway.trainer.data import mixtures, shards, snapshots
from slipway.trainer.data.mixtures import MixtureSnapshot

LEFT_OUT_KEY = "unseen"
"""The field of a manifest's `source` that names the snapshot from which documents were left out, and why."""
JUDGED = """
    WITH trained AS (SELECT blake3 FROM read_parquet($trained, union_by_name = true) WHERE split = 'train'),
    copied AS (SELECT because FROM read_parquet($table) SEMI JOIN trained USING (blake3)
               WHERE removed LIKE '%duplicate%' AND because IS NOT NULL)
    SELECT bytes, blake3 IN (FROM trained) OR name || '#' || number IN (FROM copied) AS seen
    FROM read_parquet($table) WHERE split = 'validation' ORDER BY name, number
"""


def snapshot_for(init: InitSection | None, snapshot: str, tiers: Tiers) -> str:
    """The snapshot for a training with these located weights: `snapshot`, filtered if the weights were trained on some
    of its validation documents. In a mixture, each snapshot is filtered.

    The training data of weights from elsewhere is unknown, so these filter nothing. Raises ValueError if no validation
    document remains, and for a checkpoint whose lineage cannot be read.
    """
    if init is None or init.layout != "checkpoint":
        return snapshot
    durable = tiers.durable_path
    described = snapshots.read(durable, snapshot)
    if not isinstance(described, shards.TextSnapshot):
        return snapshot
    known = snapshots_seen(Path(init.folder), tiers)
    if not isinstance(described, MixtureSnapshot):
        return _held_out(durable, snapshot, known)
    held_out = {source.dataset: _held_out(durable, source.snapshot, known) for source in described.sources}
    mixed = mixtures.mixture({name: snapshots.read(durable, sha256) for name, sha256 in held_out.items()})
    return shards.write_manifest(durable, mixed)


def _held_out(durable: Path, snapshot: str, known: Collection[str]) -> str:
    """The filtered snapshot of one dataset; `known` are the snapshots that the weights were trained on."""
    left_out = snapshots.read(durable, snapshot).source.get(LEFT_OUT_KEY, {})
    original = str(left_out.get("snapshot", snapshot))
    others = frozenset(known) - {original, snapshot}
    if others <= set(left_out.get("seen", ())):  # the snapshot is already filtered by them
        return snapshot
    filtered = _without(durable, original, others)
    if not shards.manifest_path(durable, filtered).exists():  # garbage collection has removed it since
        _without.cache_clear()
        filtered = _without(durable, original, others)
    return filtered


def snapshots_seen(folder: Path, tiers: Tiers) -> set[str]:
    """The snapshots that the weights of a checkpoint were trained on: those of its own training, and of the trainings
    whose weights it started from, by its lineage and their records. A mixture counts as the snapshots that it is made
    of. Raises ValueError for an unreadable lineage."""
    stored = progress.read(folder)
    root = all_trainings(tiers)
    trained_on = set(progress.trained_on(stored))
    known = set[str]()
    waiting = [str(stored.config.get("training", ""))]
    while waiting:
        id = waiting.pop()
        if not id or id in known or not (root.root / id).is_dir():
            continue
        known.add(id)
        specification = root.store(id).specification()
        policy = root.store(id).run_policy()
        trained_on.add(specification.snapshot)
        if specification.branch:
            waiting.append(specification.branch.training)
        parts = Path(policy.init).parts
        waiting += [parts[index + 1] for index, part in enumerate(parts[:-1]) if part == CHECKPOINTS]
    return {snapshot for trained in trained_on for snapshot in _parts(tiers.durable_path, trained)}


def _parts(durable: Path, snapshot: str) -> list[str]:
    """The snapshots of a mixture, or the snapshot itself, which may be gone."""
    if not shards.manifest_path(durable, snapshot).exists():
        return [snapshot]
    return mixtures.sources_of(snapshots.read(durable, snapshot))


@functools.lru_cache(maxsize=256)
def _without(durable: Path, snapshot: str, known: frozenset[str]) -> str:
    """Write a snapshot without the validation documents in the train splits of `known`; returns its SHA-256.

    Returns `snapshot` itself if there are none. Snapshots of `known` that are gone are ignored.
    """
    described = shards.read_manifest(durable, snapshot)
    tables_or_none = {other: _table(durable, other) for other in sorted(known)}
    tables = {other: table for other, table in tables_or_none.items() if table is not None}
    if not tables:
        return snapshot
    sizes, was_seen = _judged(table_of(described, durable), tables.values())
    split = described.splits["validation"]
    if len(was_seen) != split.documents:
        raise ValueError(f"snapshot {snapshot}: found {len(was_seen)} held-out documents, expected {split.documents}")
    if not was_seen.any():
        return snapshot
    if was_seen.all():
        raise ValueError(
            f"the weights were trained on all {len(was_seen)} validation documents of snapshot {snapshot[:16]} (in "
            f"{_named(tables)}), so no held-out documents remain: start from other weights, or give the dataset "
            "validation documents that these weights have not seen, by a larger split.validation or by new documents"
        )
    with writing_content(durable):
        remaining = _packed(durable, described, ~was_seen, sizes)
        left_out = {"snapshot": snapshot, "documents": int(was_seen.sum()), "seen": sorted(known)}
        filtered = dataclasses.replace(
            described,
            source={**described.source, LEFT_OUT_KEY: left_out},
            documents={**described.documents, "kept": described.documents["kept"] - left_out["documents"]},
            splits={**described.splits, "validation": remaining},
        )
        return shards.write_manifest(durable, filtered)


def sentence(snapshot: snapshots.Snapshot) -> str:
    """A sentence about the documents left out of a snapshot's validation split; empty if there are none."""
    described = (
        snapshot.source.get("sources", {}).values() if isinstance(snapshot, MixtureSnapshot) else [snapshot.source]
    )
    left_out = [source[LEFT_OUT_KEY] for source in described if LEFT_OUT_KEY in source]
    if not left_out:
        return ""
    snapshot_names = sorted({one for source in left_out for one in source["seen"]})
    return (
        f"{sum(source['documents'] for source in left_out):,} validation documents are left out: the initial weights "
        f"were trained on them, in {_named(snapshot_names)}"
    )


def _named(snapshot_names: Collection[str]) -> str:
    return f"snapshot{'s' if len(snapshot_names) > 1 else ''} {', '.join(name[:16] for name in snapshot_names)}"


def _table(durable: Path, snapshot: str) -> Path | None:
    """The documents table of a snapshot of texts; None if it or its manifest was removed."""
    if not shards.manifest_path(durable, snapshot).exists():
        return None
    table = table_of(snapshots.read(durable, snapshot), durable)
    return table if table.exists() else None


def _judged(table: Path, trained: Collection[Path]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """For each validation document, in the order of the shards: its bytes, and whether it (or a document left out as
    its duplicate) is in the train split of a table of `trained`."""
    values = {"table": str(table), "trained": [str(path) for path in trained]}
    with warehouse.connect() as connection:
        columns = {name for name, *_ in connection.execute("DESCRIBE FROM read_parquet(?)", [str(table)]).fetchall()}
        # The table of an older version does not name the document of which another one is a duplicate.
        query = JUDGED if "because" in columns else JUDGED.replace("SELECT because", "SELECT NULL AS because")
        rows = connection.execute(query, values).fetchnumpy()
    return rows["bytes"], np.asarray(rows["seen"].astype(bool))


def _packed(
    durable: Path, described: shards.TextSnapshot, remains: npt.NDArray[np.bool_], sizes: npt.NDArray[Any]
) -> shards.TokenSplit:
    """The validation split with only the documents in the mask `remains`. Shards that lose none are reused."""
    written = tuple(_kept_shards(durable, described, remains))
    return shards.TokenSplit(
        documents=int(remains.sum()),
        tokens=sum(shard.tokens for shard in written),
        text_bytes=int(sizes[remains].sum()),
        shards=written,
    )


def _kept_shards(
    durable: Path, described: shards.TextSnapshot, remains: npt.NDArray[np.bool_]
) -> Iterator[shards.TokenShard]:
    begin = 0
    for shard in described.splits["validation"].shards:
        in_shard = remains[begin : begin + shard.documents]
        begin += shard.documents
        if in_shard.all():
            yield shard
        elif in_shard.any():
            bodies = shards.documents(durable, shard, described.dtype)
            remaining = [body for body, stays in zip(bodies, in_shard, strict=True) if stays]
            yield shards.write_shard(durable, remaining, described.dtype)
