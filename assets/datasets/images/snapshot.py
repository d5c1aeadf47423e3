"""Snapshot of images: the kept images as image shards under one manifest.

As with texts, shards contain the images in the order of the documents table and the content decides where one shard
ends, so a snapshot shares all shards with its parent except those around a change. Pixels come from segments.
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

from slipway.assets.datasets.building.build import Build
from slipway.assets.datasets.building.build_log import BuildPhase
from slipway.assets.datasets.building.verified_shards import VerifiedShards
from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.documents.document_table import SPLITS, DocumentTable
from slipway.assets.datasets.documents.extracts import segment_path
from slipway.assets.datasets.images.documents import class_names
from slipway.assets.datasets.snapshots import packing
from slipway.assets.datasets.snapshots.snapshot_step import entropy
from slipway.recipes.dataset import ImagesSection
from slipway.trainer.base import digest
from slipway.trainer.data import images, shards

VERSION = "1"
"""The version of this code, raised when the same documents would give another snapshot."""

REMAINING = """
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
class ImagePlan:
    """The inputs of a snapshot."""

    dataset: str
    recipe_sha256: str
    source: dict[str, Any]
    """Provenance, for the manifest."""
    table: DocumentTable
    images: ImagesSection


def write(build: Build, plan: ImagePlan, index: Path, parent: images.ImageSnapshot | None) -> images.ImageSnapshot:
    """Write the shards that `parent` lacks, and then the manifest.

    `index` is the index of the pixels. Equal plans give equal bytes, with any parent or none. Memory contains one shard
    and about 200 bytes per image.
    """
    table = document_table.path(build.durable, plan.table.blake3)
    names = class_names(table)
    with document_table.connect(build.scratch) as connection:
        known = _in_parent(parent, connection, build.durable)
        verified = VerifiedShards(build.durable, plan.dataset)
        pack = _Packing(build, connection, plan.images, index, names, known, verified)
        phase = BuildPhase(build.log, "packing", plan.table.kept_rows, "images")
        splits = {split: pack.split(remaining_images(connection, table, split), phase) for split in SPLITS}
    snapshot = images.ImageSnapshot(
        dataset=plan.dataset,
        recipe=plan.recipe_sha256,
        source=plan.source,
        documents={"blake3": plan.table.blake3, "rows": plan.table.rows, "kept": plan.table.kept_rows},
        height=plan.images.height,
        width=plan.images.width,
        channels=plan.images.channels,
        classes=names,
        splits=splits,
    )
    shards.write_manifest(build.durable, snapshot, build.scratch)
    return snapshot


def remaining_images(connection: duckdb.DuckDBPyConnection, table: Path, split: str) -> pa.Table:
    """The images of a split: name, number, BLAKE3, label, hash; in the order of the table."""
    return connection.sql(REMAINING, params={"table": str(table), "split": split}).to_arrow_table()


def _labels(rows: pa.Table, names: tuple[str, ...]) -> npt.NDArray[np.uint32]:
    """The labels of images: the indices of their classes."""
    indexes = pa.compute.index_in(rows["label"], pa.array(names, pa.string()))
    return np.asarray(indexes.to_numpy(), np.uint32)


def _content(rows: pa.Table, labels: npt.NDArray[np.uint32]) -> str:
    """A hash of the images and labels of a shard, in their order."""
    return digest.of_bytes("".join(rows["blake3"].to_pylist()).encode() + labels.tobytes())


def _in_parent(
    parent: images.ImageSnapshot | None, connection: duckdb.DuckDBPyConnection, durable: Path
) -> dict[str, images.ImageShard]:
    """The parent's shards by the hash of their content; empty if its documents table is gone."""
    if parent is None:
        return {}
    table = document_table.path(durable, parent.documents["blake3"])
    if not table.exists():
        return {}
    known: dict[str, images.ImageShard] = {}
    for name, split in parent.splits.items():
        rows = remaining_images(connection, table, name)
        begin = 0
        labels = _labels(rows, parent.classes)
        for shard in split.shards:
            end = begin + shard.images
            known[_content(rows.slice(begin, shard.images), labels[begin:end])] = shard
            begin = end
    return known


@dataclass(frozen=True)
class _Packing:
    """Puts the images of a split into shards."""

    build: Build
    connection: duckdb.DuckDBPyConnection
    recipe: ImagesSection
    index: Path
    classes: tuple[str, ...]
    known: dict[str, images.ImageShard]
    verified: VerifiedShards

    def split(self, rows: pa.Table, phase: BuildPhase) -> images.ImageSplit:
        """Write a split's shards, one at a time, except those that the parent has."""
        labels = _labels(rows, self.classes)
        size = images.ImageShape(*self._shape).bytes
        written: list[images.ImageShard] = []
        for cut in self._cuts(rows, size):
            part = rows.slice(cut.start, cut.stop - cut.start)
            part_labels = labels[cut]
            shard = self.known.get(_content(part, part_labels))
            if shard is None or not self.verified.has(shard):
                shard = images.write_shard(self.build.durable, self._pixels(part), part_labels, self.build.scratch)
            written.append(shard)
            phase.add(part.num_rows)
        return images.ImageSplit(rows.num_rows, tuple(written))

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.recipe.height, self.recipe.width, self.recipe.channels

    def _cuts(self, rows: pa.Table, size: int) -> Iterator[slice]:
        sizes = np.full(rows.num_rows, size, np.int64)
        target = max(size, int(self.recipe.shard_megabytes * 1e6))
        return iter(packing.cuts(sizes, rows["hash"].to_numpy(), target))

    def _pixels(self, part: pa.Table) -> images.Pixels:
        """The pixels of images, from the segments that hold them: [images, height, width, channels]."""
        self.connection.register("part", part)
        files = set(part["name"].unique().to_pylist())
        names = pq.read_table(self.index, columns=["segment"], filters=pa.compute.field("name").isin(files))
        segments = [str(segment_path(self.build.durable, name)) for name in names["segment"].unique().to_pylist()]
        values = {"segments": segments, "index": str(self.index)}
        pixels = self.connection.sql(PIXELS, params=values).to_arrow_table()
        data = b"".join(pixels["pixels"].to_pylist())
        return np.frombuffer(data, np.uint8).reshape(part.num_rows, *self._shape)


def class_entropy(snapshot: images.ImageSnapshot, tier: Path) -> float:
    """The entropy of the validation split's classes, in nats: the loss that a model must beat.

    Raises ValueError when the split is empty.
    """
    counts = np.zeros(len(snapshot.classes), np.int64)
    for shard in snapshot.splits["validation"].shards:
        _, labels = images.open_images(tier, shard, snapshot.shape)
        counts += np.bincount(labels, minlength=len(counts))
    return entropy(counts, snapshot.sha256)
