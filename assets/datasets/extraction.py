"""Extraction: the documents of source files, read and cleaned once and kept in segments.

A segment is a Parquet file with the cleaned texts of some files and the features that the comparison of
documents needs. Segments are a cache: how files are grouped in them changes no result. A file whose version is
the same as before is not opened again; only new and changed ones are read.
"""

import functools
import json
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assets.datasets import readers, workers
from assets.datasets.cleaning import cleaner
from assets.datasets.cleaning.cleaner import Cleaner
from assets.datasets.reading.items import Text, Unfit
from assets.datasets.sources import Listing, SourceFile
from assets.datasets.workshop import deliver
from recipes.dataset import Dataset
from trainer import atomic, digest

VERSION = "1"
"""Of reading and cleaning: raised when the same file would give other documents."""

UNIT_BYTES = 32 << 20
"""Of source files that one worker extracts into one segment; a larger file is a unit of its own."""
UNIT_FILES = 1024
ROW_GROUP_BYTES = 1 << 20
"""Of text that a worker holds before it writes, and that is read where one document is asked for."""
EXCERPT = 1000
"""Characters kept of a document that a rule removed: enough to see why."""

SEGMENT = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("blake3", pa.string()),
        pa.field("language", pa.string()),
        pa.field("removed", pa.string()),
        pa.field("masked", pa.int32(), nullable=False),
        pa.field("bands", pa.list_(pa.uint64())),
        pa.field("signature", pa.binary()),
        pa.field("fingerprints", pa.list_(pa.uint64())),
    ]
)
REPEATED = ["file", "language", "removed"]
COMPRESSION = dict.fromkeys([*REPEATED, "number", "text", "bytes", "masked"], "zstd")
"""Hashes, and lists of them, grow by being compressed."""
INDEX = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("blake3", pa.string(), nullable=False),
        pa.field("segment", pa.string(), nullable=False),
    ]
)
UNREADABLE = "unreadable: "
"""What begins the reason of a document that its reader could not give."""
FILES, KEY = b"slipway.files", b"slipway.extraction"

Report = Callable[[str], None]
"""Told in words how far a step is."""


@dataclass(frozen=True)
class Extracts:
    """Where the documents of a source's files are: an index with one row a file, and the segments it names."""

    index: Path
    digest: str
    """BLAKE3 over the names and contents of all files."""
    files: int
    bytes: int
    read: int
    """Files that were opened this time."""


def segment_path(durable: Path, name: str) -> Path:
    return durable / "segments" / f"{name}.parquet"


def segments(index: Path, durable: Path, file: str | None = None) -> list[Path]:
    """The segments that an index names, for all files or for one."""
    rows = pq.ParquetFile(index).read(["name", "segment"])
    if file is not None:
        rows = rows.filter(pc.equal(rows["name"], file))
    return [segment_path(durable, name) for name in sorted(rows["segment"].unique().to_pylist())]


def extract(recipe: Dataset, listing: Listing, durable: Path, shop: Path, report: Report) -> Extracts:
    """Read and clean the files that are new or changed since the last time.

    `shop` is the dataset's workshop. Raises ValueError and OSError as opening a source's file does; the segments
    that were finished are found again by the next attempt.
    """
    known = _known(recipe, durable)
    fresh = [file for file in listing.files if known.get(file.name, ("",))[0] != file.version]
    rows = {file.name: known[file.name] for file in listing.files if file.name in known}
    size = sum(file.bytes for file in fresh)
    tasks = [_Unit(recipe, listing, unit, durable, shop) for unit in _units(fresh)]
    done = 0
    for task, found in zip(tasks, workers.run(_extract, tasks, size), strict=True):
        rows |= {file: (version, *rest) for file, version, *rest in found}
        done += sum(file.bytes for file in task.files)
        report(f"read {done / 1e6:,.0f} of {size / 1e6:,.0f} MB of new and changed files")
    # A file that changed a moment ago may change again within the same tick of its file system's clock.
    unsettled = {file.name for file in listing.files if not file.settled}
    ordered = [(name, "" if name in unsettled else rows[name][0], *rows[name][1:]) for name in sorted(rows)]
    return Extracts(
        _write_index(recipe, ordered, durable, shop),
        _digest([(name, blake3) for name, _, _, blake3, _ in ordered]),
        len(ordered),
        sum(size for _, _, size, _, _ in ordered),
        len(fresh),
    )


def recall(recipe: Dataset, listing: Listing, durable: Path) -> Extracts | None:
    """What `extract` would give if no file changed since the last time; None if one did. Nothing is read."""
    known = _known(recipe, durable)
    if {file.name: file.version for file in listing.files} != {name: row[0] for name, row in known.items()}:
        return None
    found = _digest([(name, row[2]) for name, row in sorted(known.items())])
    return Extracts(newest(durable, recipe.name), found, len(known), sum(row[1] for row in known.values()), 0)


def newest(durable: Path, dataset: str) -> Path:
    """The index written last; a path that does not exist when there is none."""
    folder = durable / "datasets" / dataset
    try:
        name = json.loads((folder / "extracts.json").read_bytes())["index"]
    except FileNotFoundError:
        name = "none"
    return folder / "extracts" / str(name)


def texts(segment: Path, wanted: Container[str]) -> Iterator[tuple[str, str]]:
    """The BLAKE3 and text of a segment's documents whose BLAKE3 is wanted, each once, some rows at a time."""
    seen = set[str]()
    for batch in pq.ParquetFile(segment, pre_buffer=False).iter_batches(256, columns=["blake3", "removed", "text"]):
        hashes, removed = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        for row, blake3 in enumerate(hashes):
            if removed[row] is None and blake3 in wanted and blake3 not in seen:
                seen.add(blake3)
                yield blake3, batch.column(2)[row].as_py()


@dataclass(frozen=True)
class _Unit:
    """Files that one worker extracts into one segment."""

    recipe: Dataset
    listing: Listing
    files: tuple[SourceFile, ...]
    durable: Path
    shop: Path

    @functools.cached_property
    def key(self) -> str:
        files = [[file.name, file.version, file.bytes] for file in self.files]
        return digest.of_bytes(atomic.canonical_json([_key(self.recipe), files]))


def _units(files: Iterable[SourceFile]) -> Iterator[tuple[SourceFile, ...]]:
    unit: list[SourceFile] = []
    size = 0
    for file in files:
        if unit and (len(unit) == UNIT_FILES or size + file.bytes > UNIT_BYTES):
            yield tuple(unit)
            unit, size = [], 0
        unit.append(file)
        size += file.bytes
    if unit:
        yield tuple(unit)


def _extract(unit: _Unit) -> list[list[Any]]:
    """Write the unit's segment, unless an earlier attempt did; gives the index's row of each file."""
    path = segment_path(unit.durable, unit.key)
    settled = all(file.settled for file in unit.files)
    if not (settled and path.exists()):
        made = unit.shop / f"{unit.key}.parquet"
        _write_segment(unit, made)
        deliver(made, path)
    found: list[list[Any]] = json.loads(pq.read_metadata(path).metadata[FILES])
    return found


def _write_segment(unit: _Unit, path: Path) -> None:
    cleaning, files, rows = Cleaner(unit.recipe.cleaning), [], _Rows()
    with pq.ParquetWriter(path, SEGMENT, compression=COMPRESSION, use_dictionary=REPEATED) as writer:
        for file in unit.files:
            opened = readers.documents(unit.listing, file, unit.recipe.reading)
            for document in opened:
                rows.append(_row(cleaning, file.name, document))
                if rows.full:
                    writer.write_table(rows.taken())
            files.append([file.name, file.version, file.bytes, opened.blake3, unit.key])
        writer.write_table(rows.taken())
        writer.add_key_value_metadata({FILES: json.dumps(files)})


class _Rows:
    """Rows that wait to be written, and how much text they hold."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def append(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self._bytes += row["bytes"]

    @property
    def full(self) -> bool:
        return self._bytes >= ROW_GROUP_BYTES or len(self._rows) >= UNIT_FILES

    def taken(self) -> pa.Table:
        """The rows as a table; they wait no more."""
        columns = [_column([row[field.name] for row in self._rows], field.type) for field in SEGMENT]
        self._rows, self._bytes = [], 0
        return pa.Table.from_arrays(columns, schema=SEGMENT)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values as an array; those of lists are arrays already, and are joined as they are."""
    if not pa.types.is_list(kind):
        return pa.array(values, kind)
    lists = [_NO_HASHES if value is None else value for value in values]
    ends = np.cumsum([0, *map(len, lists)])
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), np.concatenate([_NO_HASHES, *lists]), kind, mask=mask)


def _row(cleaning: Cleaner, file: str, document: Text | Unfit) -> dict[str, Any]:
    if isinstance(document, Unfit):
        return _NOTHING | {"file": file, "number": document.number, "removed": UNREADABLE + document.reason}
    cleaned = cleaning.clean(file, document.text)
    data = cleaned.text.encode()
    return {
        "file": file,
        "number": document.number,
        "text": cleaned.text if cleaned.removed is None else cleaned.text[:EXCERPT],
        "bytes": len(data),
        "blake3": digest.of_bytes(data),
        "language": cleaned.language,
        "removed": cleaned.removed,
        "masked": sum(cleaned.masked.values()),
        "bands": cleaned.bands,
        "signature": None if cleaned.signature is None else cleaned.signature.tobytes(),
        "fingerprints": cleaned.fingerprints,
    }


_NO_HASHES = np.empty(0, np.uint64)
_NOTHING: dict[str, Any] = {field.name: None for field in SEGMENT} | {"bytes": 0, "masked": 0}


def configuration(recipe: Dataset) -> str:
    """A hash of all that decides what a file's documents are, besides its name and content."""
    cleaning = recipe.cleaning.model_dump(mode="json")
    if cleaning["decontamination"]:
        cleaning["decontamination"] = True  # against what is a matter of the comparison
    reading = recipe.reading.model_dump(mode="json", exclude={"quarantine"})
    return digest.of_bytes(atomic.canonical_json([VERSION, cleaner.VERSION, reading, cleaning]))


def _key(recipe: Dataset) -> str:
    """The configuration, and where the files lie: versions of files mean nothing elsewhere."""
    place = recipe.source.model_dump(mode="json", include={"kind", "path", "url"})
    return digest.of_bytes(atomic.canonical_json([configuration(recipe), place]))


def _known(recipe: Dataset, durable: Path) -> dict[str, tuple[Any, ...]]:
    """The rows of the newest index by name, without those whose segment is gone; none if it was made otherwise."""
    path = newest(durable, recipe.name)
    if not path.exists():
        return {}
    table = pq.ParquetFile(path).read()
    if table.schema.metadata[KEY].decode() != _key(recipe):
        return {}
    there = {name for name in set(table["segment"].to_pylist()) if segment_path(durable, name).exists()}
    rows = zip(*(table[field.name].to_pylist() for field in INDEX), strict=True)
    return {name: (version, *rest, segment) for name, version, *rest, segment in rows if segment in there}


def _write_index(recipe: Dataset, rows: list[tuple[Any, ...]], durable: Path, shop: Path) -> Path:
    """Write an index under a name of its own, and point at it as the newest."""
    folder, made = durable / "datasets" / recipe.name, shop / "extracts.parquet"
    columns = zip(zip(*rows, strict=True), INDEX, strict=True)
    schema = INDEX.with_metadata({KEY: _key(recipe)})
    pq.write_table(pa.table([pa.array(column, field.type) for column, field in columns], schema=schema), made)
    path = folder / "extracts" / f"{digest.of_file(made)[:16]}.parquet"
    if not path.exists():
        deliver(made, path)
    newest = atomic.readable_json({"index": path.name})
    if not (folder / "extracts.json").exists() or (folder / "extracts.json").read_bytes() != newest:
        atomic.replace(folder / "extracts.json", newest, shop)
    return path


def _digest(files: Iterable[tuple[str, str]]) -> str:
    """BLAKE3 over names and contents, in the order of the names."""
    return digest.of_bytes(atomic.canonical_json(list(files)))
