"""Snapshot of images: the kept ones as image shards under one manifest.

As with texts, shards hold the images in the order of the documents table and are cut where their content says,
so that a snapshot shares all shards with its parent but those around what changed. Pixels come from segments.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from assets.datasets import documents, extraction, packing
from assets.datasets.extraction import Report
from assets.datasets.snapshot import entropy
from recipes.dataset import Images
from trainer import digest, images, shards

VERSION = "1"
"""Of the code below: raised when the same documents would give another snapshot."""

KEPT = """
    SELECT name, number, blake3, label, ('0x' || right(blake3, 16))::UBIGINT AS hash
    FROM read_parquet($table) WHERE split = $split ORDER BY name, number
"""
PIXELS = """
    SELECT d.pixels FROM part JOIN read_parquet($segments, filename = 'segment_file') d
    ON d.file = part.name AND d.number = part.number
    JOIN read_parquet($index) e ON e.name = d.file AND e.segment = parse_filename(d.segment_file, true)
    ORDER BY part.name, part.number
"""


@dataclass(frozen=True)
class Plan:
    """What a snapshot is made of."""

    dataset: str
    recipe_sha256: str
    source: dict[str, Any]
    """Provenance, for the manifest."""
    table: documents.Documents
    images: Images


def build(
    plan: Plan, index: Path, parent: images.Snapshot | None, durable: Path, shop: Path, report: Report
) -> images.Snapshot:
    """Write the shards that `parent` has not, and then the manifest; `index` says where the pixels are.

    `shop` is the dataset's workshop. Equal plans give equal bytes, with any parent or none. Memory holds a shard,
    and about 200 bytes an image.
    """
    table = documents.table_path(durable, plan.table.blake3)
    names = classes(table)
    with documents.connect(shop) as connection:
        pack = _Packing(connection, plan.images, index, names, _in_parent(parent, connection, durable), durable, shop)
        splits = {split: pack.split(kept(connection, table, split), split, report) for split in documents.SPLITS}
    snapshot = images.Snapshot(
        dataset=plan.dataset,
        recipe=plan.recipe_sha256,
        source=plan.source,
        documents={"blake3": plan.table.blake3, "rows": plan.table.rows, "kept": plan.table.kept},
        height=plan.images.height,
        width=plan.images.width,
        channels=plan.images.channels,
        classes=names,
        splits=splits,
    )
    shards.write_manifest(durable, snapshot, shop)
    return snapshot


def classes(table: Path) -> tuple[str, ...]:
    """The classes of a table's kept images: in the order of numbers if all are numbers, else in that of letters."""
    columns = pq.read_table(table, columns=["label"], filters=pa.compute.field("removed").is_null())
    names = sorted(columns["label"].unique().to_pylist())
    return tuple(sorted(names, key=int) if all(_is_number(name) for name in names) else names)


def _is_number(name: str) -> bool:
    """Whether a name is a whole number as it is written in decimals."""
    digits = name.removeprefix("-")
    return digits.isdecimal() and name == str(int(name))


def kept(connection: duckdb.DuckDBPyConnection, table: Path, split: str) -> pa.Table:
    """The images of a split: name, number, BLAKE3, label, hash; in the order of the table."""
    return connection.sql(KEPT, params={"table": str(table), "split": split}).to_arrow_table()


def _labels(rows: pa.Table, names: tuple[str, ...]) -> npt.NDArray[np.uint32]:
    """The labels of images: the places of their classes."""
    places = pa.compute.index_in(rows["label"], pa.array(names, pa.string()))
    return np.asarray(places.to_numpy(), np.uint32)


def _content(rows: pa.Table, labels: npt.NDArray[np.uint32]) -> str:
    """A hash of the images and labels of a shard, in their order."""
    return digest.of_bytes("".join(rows["blake3"].to_pylist()).encode() + labels.tobytes())


def _in_parent(
    parent: images.Snapshot | None, connection: duckdb.DuckDBPyConnection, durable: Path
) -> dict[str, images.Shard]:
    """The parent's shards by what they hold; none when its table is gone."""
    if parent is None or not (table := documents.table_path(durable, parent.documents["blake3"])).exists():
        return {}
    found: dict[str, images.Shard] = {}
    for name, split in parent.splits.items():
        rows, begin = kept(connection, table, name), 0
        labels = _labels(rows, parent.classes)
        for shard in split.shards:
            end = begin + shard.images
            found[_content(rows.slice(begin, shard.images), labels[begin:end])] = shard
            begin = end
    return found


@dataclass(frozen=True)
class _Packing:
    """Puts the images of a split into shards."""

    connection: duckdb.DuckDBPyConnection
    recipe: Images
    index: Path
    classes: tuple[str, ...]
    known: dict[str, images.Shard]
    durable: Path
    shop: Path

    def split(self, rows: pa.Table, name: str, report: Report) -> images.Split:
        """Write a split's shards, one at a time, but those that lie there whole already."""
        labels, size = _labels(rows, self.classes), images.Shape(*self._shape).bytes
        written: list[images.Shard] = []
        for cut in self._cuts(rows, size):
            part, here = rows.slice(cut.start, cut.stop - cut.start), labels[cut]
            shard = self.known.get(_content(part, here))
            if shard is None or not self._is_whole(shard):
                shard = images.write_shard(self.durable, self._pixels(part), here, self.shop)
            written.append(shard)
            report(f"{name}: {cut.stop:,} of {rows.num_rows:,} images are in shards")
        return images.Split(rows.num_rows, tuple(written))

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.recipe.height, self.recipe.width, self.recipe.channels

    def _cuts(self, rows: pa.Table, size: int) -> Iterator[slice]:
        sizes = np.full(rows.num_rows, size, np.int64)
        target = max(size, int(self.recipe.shard_megabytes * 1e6))
        return iter(packing.cuts(sizes, rows["hash"].to_numpy(), target))

    def _is_whole(self, shard: images.Shard) -> bool:
        """Whether the shard is there undamaged."""
        path = shards.shard_path(self.durable, shard)
        return path.exists() and digest.of_file(path) == shard.blake3

    def _pixels(self, part: pa.Table) -> images.Pixels:
        """The pixels of images, from the segments that hold them: [images, height, width, channels]."""
        self.connection.register("part", part)
        files = set(part["name"].unique().to_pylist())
        names = pq.read_table(self.index, columns=["segment"], filters=pa.compute.field("name").isin(files))
        segments = [str(extraction.segment_path(self.durable, name)) for name in names["segment"].unique().to_pylist()]
        values = {"segments": segments, "index": str(self.index)}
        found = self.connection.sql(PIXELS, params=values).to_arrow_table()
        data = b"".join(found["pixels"].to_pylist())
        return np.frombuffer(data, np.uint8).reshape(part.num_rows, *self._shape)


def class_entropy(snapshot: images.Snapshot, tier: Path) -> float:
    """Entropy of the validation split's classes, in nats: what a model reaches that never looks at a picture.

    Raises ValueError when the split is empty.
    """
    counts = np.zeros(len(snapshot.classes), np.int64)
    for shard in snapshot.splits["validation"].shards:
        _, labels = images.open_images(tier, shard, snapshot.shape)
        counts += np.bincount(labels, minlength=len(counts))
    if not counts.sum():
        raise ValueError(f"snapshot {snapshot.sha256}: its validation split is empty, so it has no entropy")
    return entropy(counts)
