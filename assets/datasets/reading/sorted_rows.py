"""Sorted rows: an external merge sort of any number of named tuples by their first field.

Every ROWS_AT_ONCE rows are sorted and written to a Parquet file, so memory contains one such batch. A few rows stay in
memory without a file. Rows that arrive nearly in order, for example from a walk through folders, are read file by file;
overlapping files are merged.
"""

import heapq
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.datasets.building.scratch_dir import writing

Row = TypeVar("Row", bound=tuple[Any, ...])
ROWS_AT_ONCE = 1 << 15
READ_AT_ONCE = 1 << 12


class SortedRows(Generic[Row]):
    """The rows in order; each iteration starts at the first. `len` is their number."""

    def __init__(self, make: Callable[..., Row], schema: pa.Schema, folder: Path | None = None) -> None:
        """`make` makes a row from its fields, of which the first is a text. The files are in `folder`, by default the
        folder for temporary files, and are removed with this object."""
        self._make = make
        self._schema = schema
        self._folder = folder
        self._waiting = list[Row]()
        self._runs: list[_Run] = []
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._count = 0

    def append(self, row: Row) -> None:
        """Add a row."""
        self._waiting.append(row)
        self._count += 1
        if len(self._waiting) == ROWS_AT_ONCE:
            self._write_run()

    def extend(self, rows: Iterable[Row]) -> Self:
        """Add rows; gives this object."""
        for row in rows:
            self.append(row)
        return self

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        self._waiting.sort()
        parts = [(run.first, run.last, self._read(run)) for run in self._runs]
        if self._waiting:
            parts.append((self._waiting[0][0], self._waiting[-1][0], iter(self._waiting)))
        parts.sort(key=lambda part: part[0])
        rows = [row for _, _, row in parts]
        apart = all(before[1] <= after[0] for before, after in itertools.pairwise(parts))
        if apart:
            return itertools.chain.from_iterable(rows)
        return heapq.merge(*rows)

    def _write_run(self) -> None:
        self._waiting.sort()
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="rows-", dir=self._folder, ignore_cleanup_errors=True)
        path = Path(self._scratch.name) / f"{len(self._runs)}.parquet"
        columns = zip(zip(*self._waiting, strict=True), self._schema, strict=True)
        table = pa.table([pa.array(column, field.type) for column, field in columns], schema=self._schema)
        with writing(path):
            pq.write_table(table, path, compression="zstd")
        self._runs.append(_Run(self._waiting[0][0], self._waiting[-1][0], path))
        self._waiting = []

    def _read(self, run: "_Run") -> Iterator[Row]:
        with pq.ParquetFile(run.path) as file:
            for batch in file.iter_batches(READ_AT_ONCE):
                yield from map(self._make, *(column.to_pylist() for column in batch.columns))


class _Run(NamedTuple):
    """Rows in a file: the names of the first and the last one."""

    first: str
    last: str
    path: Path
