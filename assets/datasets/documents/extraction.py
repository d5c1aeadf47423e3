"""Extraction: reads and cleans the documents of source files once, and stores them in segments.

A segment has the rows of some files' documents: cleaned texts with the features for the comparison of documents, or
decoded images with their labels. Only new and changed files are read; a file with an unchanged version is not opened.
"""

import functools
import itertools
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.datasets.building import workers
from slipway.assets.datasets.building.build import Build, DocumentKind
from slipway.assets.datasets.building.build_log import BYTES, BuildPhase
from slipway.assets.datasets.building.scratch_dir import writing
from slipway.assets.datasets.documents.extracts import (
    Extracts,
    FileRow,
    FilesDigest,
    FreshRows,
    KnownFiles,
    digest_of,
    newest,
    segment_path,
    write_index,
)
from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.reading.document import NO_TEXT, UnfitDocument
from slipway.assets.datasets.reading.listed_file import UnreadFile
from slipway.assets.datasets.reading.opened_file import OpenedFile
from slipway.assets.datasets.reading.sorted_rows import SortedRows
from slipway.assets.datasets.reading.sources import SourceFile, SourceListing
from slipway.recipes.dataset import DatasetRecipe, DirectorySource
from slipway.trainer.base import atomic, digest, parsing
from slipway.trainer.data import shards

VERSION = "6"
"""The version of this code, raised if the same file would give other documents."""

UNIT_BYTES = 32 << 20
"""The most bytes of source files that one worker extracts into one segment; a larger file is a unit of its own."""
SMALL_UNIT_BYTES = 8 << 20
"""The smallest such limit, used if there is little to read, so that all workers get about the same amount."""
UNITS = 32
"""The wanted number of units, within these two limits."""
UNIT_FILES = 1024
OPENING_BYTES = 2048
"""The cost of opening a file, as the number of bytes of text that are read and cleaned in that time."""
ROW_GROUP_BYTES = 1 << 20
"""Bytes of documents that a worker collects before writing them, and that must be read to get one document."""
REPEATED = {"file", "language", "license", "label", "removed"}
HASHES = {"blake3", "bands", "signature", "fingerprints"}
"""Columns that compression would enlarge."""
UNREADABLE = "unreadable: "
"""The beginning of the recorded reason for an unreadable document."""
OTHER = "no text: "
"""The beginning of the recorded reason for a file without text, such as a picture of a site. These never fail a
build."""
FILES = b"slipway.files"
"""The key in a segment's metadata for the index rows of its files."""
_NO_HASHES = np.empty(0, np.uint64)


def extract(build: Build, listing: SourceListing) -> Extracts:
    """Read and clean the files that are new or changed since the last build.

    Raises OSError if opening a source's file does; the next attempt reuses the finished segments.
    """
    key = _key(build.recipe, build.kind)
    known = KnownFiles(build.durable, build.recipe.name, key)
    fresh = sources.source_files(build.scratch)
    fresh.extend(file for file, row in known.of(listing.files) if row is None)
    extracted = iter(FreshRows(_extracted_rows(build, listing, fresh), build.scratch))

    def rows() -> Iterator[FileRow]:
        """The index's row of each file, in the order of names."""
        for file, row in known.of(listing.files):
            name, version, *rest = next(extracted) if row is None else row
            assert name == file.name, "files are read in the order of their names"
            # A file that has just changed may change again within the same tick of its file system's clock.
            yield (name, version if file.settled else "", *rest)

    files_digest = FilesDigest()
    index = write_index(build.durable, build.recipe.name, key, files_digest.of_rows(rows()), build.scratch)
    return Extracts(index, files_digest.hexdigest(), len(listing.files), listing.bytes, len(fresh))


def _extracted_rows(build: Build, listing: SourceListing, fresh: SortedRows[SourceFile]) -> Iterator[FileRow]:
    """The index's rows of files that are read now, in the order of names."""
    size = sum(file.bytes for file in fresh)
    for_workers = build.for_workers
    without_names = listing.without_names
    units = (_Unit(for_workers, without_names, unit) for unit in units_of(fresh, size))
    tasks, begun = itertools.tee(units)  # tee buffers the units in progress
    phase = BuildPhase(build.log, "reading new and changed files", size, BYTES)
    everywhere = listing.kind != "stdlib"  # every machine has its own standard library
    work = size + OPENING_BYTES * len(fresh)
    for task, rows in zip(tasks, workers.run(_extract, begun, work, everywhere=everywhere), strict=True):
        for file, (_, version, *rest, _) in zip(task.files, rows, strict=True):
            yield (file.name, version and file.version, *rest, task.key)
        phase.add(sum(file.bytes for file in task.files))


def recall(recipe: DatasetRecipe, kind: DocumentKind, listing: SourceListing, durable: Path) -> Extracts | None:
    """The extracts of the last build if no file has changed since, else None. No file of the source is read."""
    known = KnownFiles(durable, recipe.name, _key(recipe, kind))
    if len(known) != len(listing.files) or any(row is None for _, row in known.of(listing.files)):
        return None
    known_digest = digest_of((name, blake3) for name, _, _, blake3, _ in known)
    return Extracts(newest(durable, recipe.name), known_digest, len(known), listing.bytes, 0)


def configuration(recipe: DatasetRecipe, kind: DocumentKind) -> str:
    """A hash of everything besides name and content that decides the documents of a file."""
    return digest.of_bytes(atomic.canonical_json([VERSION, *kind.configuration(recipe)]))


def _key(recipe: DatasetRecipe, kind: DocumentKind) -> str:
    """A hash of the configuration and the place of the files, because versions of files are valid only there."""
    source = recipe.source
    if isinstance(source, DirectorySource):
        location: Any = source.location
    else:
        location = source.model_dump(mode="json", include={"kind", "url"})
    return digest.of_bytes(atomic.canonical_json([configuration(recipe, kind), location]))


@dataclass(frozen=True)
class _Unit:
    """Files that one worker extracts into one segment."""

    build: Build
    listing: SourceListing
    files: tuple[SourceFile, ...]

    @functools.cached_property
    def key(self) -> str:
        files = [[file.name, file.version, file.bytes] for file in self.files]
        return digest.of_bytes(atomic.canonical_json([_key(self.build.recipe, self.build.kind), files]))


def units_of(files: Iterable[SourceFile], total: int) -> Iterator[tuple[SourceFile, ...]]:
    """The files, with `total` bytes together, in groups for one worker each."""
    # The size is a power of two, so that a few more files change few of the segments that a failed build has finished.
    unit_count = 1 << (total // UNITS).bit_length() >> 1
    most = min(UNIT_BYTES, max(SMALL_UNIT_BYTES, unit_count))
    size = 0
    unit: list[SourceFile] = []
    for file in files:
        if unit and (len(unit) == UNIT_FILES or size + file.bytes > most):
            yield tuple(unit)
            unit = []
            size = 0
        unit.append(file)
        size += file.bytes
    if unit:
        yield tuple(unit)


def _extract(unit: _Unit) -> list[list[Any]]:
    """Write the unit's segment unless an earlier attempt has; returns the index's row of each file.

    A file that cannot be read now is quarantined: its row has no version, so the next build reads it again.
    """
    path = segment_path(unit.build.durable, unit.key)
    settled = all(file.settled for file in unit.files)
    if settled and shards.made_young(path) and all(version for _, version, *_ in _files_of(path)):
        return _files_of(path)
    # The name is unique, because another worker may process the same unit if this one was considered dead.
    temporary = unit.build.scratch / f"{unit.key}-{uuid.uuid4().hex}.parquet"
    broken_off = dict[str, UnreadFile]()
    while (broken := _write_segment(unit, temporary, broken_off)) is not None:
        broken_off |= broken
    atomic.move(temporary, path)
    return _files_of(path)


def _files_of(segment: Path) -> list[list[Any]]:
    files: list[list[Any]] = parsing.value(pq.read_metadata(segment).metadata[FILES])
    return files


def _write_segment(unit: _Unit, path: Path, broken_off: Mapping[str, UnreadFile]) -> dict[str, UnreadFile] | None:
    """Write the unit's segment, with a quarantined document for each unreadable file.

    `broken_off` are files that an earlier attempt could not read to the end. If there is another such file, it is
    returned and the segment must be written again, because it contains some of the file's documents.
    """
    recipe = unit.build.recipe
    kind = unit.build.kind
    schema = kind.segment
    files = []
    read = kind.reader(recipe)
    row_of = kind.row_of(recipe)
    rows = _Rows(schema)
    with writing(path), pq.ParquetWriter(path, schema, **_layout(schema)) as writer:
        for file in unit.files:
            opened = OpenedFile(unit.listing, file, read)
            begun = False
            try:
                if file.name in broken_off:
                    raise broken_off[file.name]
                for document in opened:
                    begun = True
                    unfit = isinstance(document, UnfitDocument)
                    rows.append(_unfit_row(schema, file.name, document) if unfit else row_of(file.name, document))
                    if rows.full:
                        writer.write_table(rows.taken())
            except UnreadFile as error:
                if begun:
                    return {file.name: error}
                rows.append(_unfit_row(schema, file.name, UnfitDocument(0, error.reason)))
                files.append([file.name, "", file.bytes, "", unit.key])
            else:
                files.append([file.name, file.version, file.bytes, opened.blake3, unit.key])
        writer.write_table(rows.taken())
        writer.add_key_value_metadata({FILES: json.dumps(files)})
    return None


def _layout(schema: pa.Schema) -> dict[str, Any]:
    """The Parquet settings of a segment's columns."""
    return {
        "compression": {name: "none" if name in HASHES else "zstd" for name in schema.names},
        "use_dictionary": [name for name in schema.names if name in REPEATED],
    }


def _unfit_row(schema: pa.Schema, file: str, document: UnfitDocument) -> dict[str, Any]:
    nothing = {field.name: None if field.nullable else 0 for field in schema}
    why = (OTHER if document.reason in NO_TEXT else UNREADABLE) + document.reason
    return nothing | {"file": file, "number": document.number, "removed": why}


class _Rows:
    """A buffer of rows to write."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def append(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self._bytes += row["bytes"]

    @property
    def full(self) -> bool:
        return self._bytes >= ROW_GROUP_BYTES or len(self._rows) >= UNIT_FILES

    def taken(self) -> pa.Table:
        """Take the buffered rows as a table."""
        columns = [_column([row[field.name] for row in self._rows], field.type) for field in self._schema]
        self._rows = []
        self._bytes = 0
        return pa.Table.from_arrays(columns, schema=self._schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values as an array; values of a list column are arrays already and are joined."""
    if not pa.types.is_list(kind):
        return pa.array(values, kind)
    lists = [_NO_HASHES if value is None else value for value in values]
    ends = np.cumsum([0, *map(len, lists)])
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), np.concatenate([_NO_HASHES, *lists]), kind, mask=mask)
