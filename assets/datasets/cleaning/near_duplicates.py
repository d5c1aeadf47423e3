"""Near-duplicates: finds documents that are nearly the same, among any number, in bounded memory.

Documents that share a band are candidates; two candidates whose signatures agree in a share of at least `similarity`
are connected; a cluster is a set of documents that are connected, directly or through others. The clusters depend on
the documents alone, not on their order or numbers. Two documents of Jaccard similarity s are candidates with the
probability that `minhash` states, and connected if their signatures' estimate of s reaches the threshold too.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slipway.assets.datasets.building.scratch_dir import writing
from slipway.assets.datasets.cleaning import minhash

ROWS_AT_ONCE = 16_384
"""Rows whose bands are read together: 2 MB at a similarity of 0.8, and 15 MB at 0.3."""
PAIRS_AT_ONCE = 16_384
"""Candidate pairs that are verified together: 15 MB of signatures."""
PLACES_AT_ONCE = 1 << 16
"""Rows whose cluster is looked up at once."""
PAIRS_IN_MEMORY = 1 << 19
"""Pairs that wait in memory: 8 MiB, and three times that while they are written."""
PARTS = 256
"""The number of files: the first byte of a pair's band decides its file. For 16 million documents each has 16 MB."""

SIGNATURE_BYTES = minhash.PERMUTATIONS * np.dtype(np.uint32).itemsize
_FIRSTS = pa.schema([pa.field("row", pa.int64()), pa.field("first", pa.int64())])

Rows = npt.NDArray[np.int64]
Indexes = npt.NDArray[Any]
"""Integers of numpy's width for indices."""
Bands = npt.NDArray[np.uint64]
Pairs = npt.NDArray[np.uint64]
"""Bands, each with one of its rows: shape (pairs, 2)."""


def duplicates(connection: duckdb.DuckDBPyConnection, features: str, similarity: float, folder: Path) -> pa.Table:
    """The rows that are in a cluster with a smaller row: columns `row` and `first`, the smallest row of the cluster.

    Both are int64, ascending by `row`; a row that is not in the table is alone, or the first of its cluster.
    `features` names a relation of the connection with the columns `row` (distinct, below 2^63), `bands` (a list of
    uint64) and `signature` (a blob: `minhash.Signature` in bytes). duckdb reads it within its `memory_limit` and spills
    to its `temp_directory`; bands and signatures wait in `folder`. In addition memory holds 24 bytes for each row that
    has a candidate, 16 for each of the result, and 1/256 of all bands with their rows, or those of the largest bucket.

    A pair is compared unless its two rows are known to be connected, so n copies of a page cost n comparisons and not
    n^2: in each round one row of each bucket (the rows that share a band) is compared with all others there and leaves
    the bucket; a bucket is done when all its remaining rows are connected.
    """
    with SharedBands(folder / "bands") as shared:
        for batch in connection.sql(f"select row::bigint as row, bands from {features}").to_arrow_reader(ROWS_AT_ONCE):
            counts = pc.list_value_length(batch["bands"]).fill_null(0).to_numpy()
            shared.add(batch["bands"].flatten().to_numpy(), np.repeat(batch["row"].to_numpy(), counts))
        clusters = Clusters(shared.rows())
        with _signatures(connection, features, clusters.rows, folder / "signatures") as signatures:
            for pairs in shared.parts():
                _compare(pairs[:, 0], pairs[:, 1].astype(np.int64), clusters, signatures, similarity)
    return pa.Table.from_batches(
        (pa.record_batch([rows[rows > firsts], firsts[rows > firsts]], _FIRSTS) for rows, firsts in clusters.firsts()),
        _FIRSTS,
    )


def _signatures(connection: duckdb.DuckDBPyConnection, features: str, rows: Rows, path: Path) -> "SignatureFile":
    """The signatures of these rows, once, because there may be many rounds, and `features` may be read from files."""
    connection.register("_candidates", pa.table({"row": rows}))
    query = f"select row::bigint as row, signature from {features} where row in (select row from _candidates)"
    signatures = SignatureFile(path, rows, connection.sql(query).to_arrow_reader(ROWS_AT_ONCE))
    connection.unregister("_candidates")
    return signatures


def _compare(buckets: Bands, rows: Rows, clusters: "Clusters", signatures: "SignatureFile", similarity: float) -> None:
    """Connect the rows of each bucket that are similar enough; the rows of a bucket are one after the other."""
    while len(rows):
        own = clusters.of(rows)
        first, size = _runs(buckets)
        mixed = np.repeat(np.minimum.reduceat(own, first) < np.maximum.reduceat(own, first), size)
        rows = rows[mixed]
        buckets = buckets[mixed]
        first, size = _runs(buckets)
        leaders = np.repeat(rows[first], size)
        for begin in range(0, len(rows), PAIRS_AT_ONCE):
            some = slice(begin, begin + PAIRS_AT_ONCE)
            _connect_similar(clusters, signatures, similarity, leaders[some], rows[some])
        rows = np.delete(rows, first)
        buckets = np.delete(buckets, first)


def _connect_similar(
    clusters: "Clusters", signatures: "SignatureFile", similarity: float, leaders: Rows, others: Rows
) -> None:
    """Connect those of the pairs that are similar enough; a pair that is connected already is not compared."""
    apart = clusters.of(leaders) != clusters.of(others)
    leaders, others = clusters.distinct(leaders[apart], others[apart])
    similar = minhash.similarity(signatures.of(leaders), signatures.of(others)) >= similarity
    clusters.connect(leaders[similar], others[similar])


def _runs(sorted_values: npt.NDArray[np.uint64]) -> tuple[Indexes, Indexes]:
    """The place of the first of each run of equal values, and the length of the run."""
    first = np.flatnonzero(np.append(True, sorted_values[1:] != sorted_values[:-1])[: len(sorted_values)])
    return first, np.diff(np.append(first, len(sorted_values)))


class SharedBands:
    """The bands that were added with more than one row, of any number of rows in bounded memory.

    Few bands of a corpus are shared, and only these lead to candidates. They are found by sorting. What does not fit
    the memory waits in files, each with the bands of one range, which are spread evenly because they are hashes: all
    rows of a band are in one file. Joins and groups of duckdb find them too, at a multiple of the processor time, and
    fail in the memory that they may have at some ten million documents.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is where pairs wait for which there is no memory; it is made then, and is gone at the end."""
        self._folder = folder
        self._waiting = list[Pairs]()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._folder.exists():
            shutil.rmtree(self._folder)

    def add(self, bands: Bands, rows: Rows) -> None:
        """Add bands, each with the row at its place. Raises OSError when the disk is full."""
        self._waiting.append(np.stack([bands, rows.astype(np.uint64)], axis=1))
        self._count += len(bands)
        if self._count > PAIRS_IN_MEMORY:
            self._write()

    def rows(self) -> Rows:
        """The rows that share a band with another one, ascending, each once; nothing is added after that."""
        if self._folder.exists():
            self._write()
        distinct = np.empty(0, np.int64)
        waiting = list[Rows]()
        count = 0
        for number, pairs in enumerate(self.parts()):
            shared = _shared(pairs)
            self._keep(number, shared)
            waiting.append(np.unique(shared[:, 1]).astype(np.int64))
            count += len(waiting[-1])
            if count > PAIRS_IN_MEMORY:
                distinct = np.unique(np.concatenate([distinct, *waiting]))
                count = 0
                waiting.clear()
        return np.unique(np.concatenate([distinct, *waiting]))

    def parts(self) -> Iterator[Pairs]:
        """What was added, after `rows` only the bands that are shared, in their order; all rows of a band are in one
        part."""
        if self._folder.exists():
            yield from (np.fromfile(self._path(number), np.uint64).reshape(-1, 2) for number in range(PARTS))
        else:
            yield np.concatenate([np.empty((0, 2), np.uint64), *self._waiting])

    def _keep(self, number: int, pairs: Pairs) -> None:
        """Put pairs in the place of a part."""
        if not self._folder.exists():
            self._waiting = [pairs]
            return
        with writing(self._path(number)), self._path(number).open("wb") as file:
            file.write(pairs.data)

    def _write(self) -> None:
        """Add what waits to the files."""
        self._folder.mkdir(exist_ok=True)
        pairs = np.concatenate([np.empty((0, 2), np.uint64), *self._waiting])
        self._waiting.clear()
        self._count = 0
        part = (pairs[:, 0] >> np.uint64(56)).astype(np.uint8)
        pairs = pairs[np.argsort(part, kind="stable")]
        ends = np.cumsum(np.bincount(part, minlength=PARTS))
        for number, some in enumerate(np.split(pairs, ends[:-1])):
            with writing(self._path(number)), self._path(number).open("ab") as file:
                file.write(some.data)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:03}"


def _shared(pairs: Pairs) -> Pairs:
    """The pairs of bands that more than one of them has, in the order of bands."""
    ordered = pairs[np.argsort(pairs[:, 0])]
    bands = ordered[:, 0]
    same = bands[1:] == bands[:-1]
    return np.asarray(ordered[np.append(False, same) | np.append(same, False)] if len(pairs) else ordered)


class SignatureFile:
    """The signatures of the rows that have a candidate, of which some thousand are read at a time.

    They are 448 bytes each, more than all else that is known of a row; so they wait on disk, in the order in which they
    come, and are read by their place: memory holds 8 bytes for each row. A join of duckdb that carries them needs more
    memory than it may have from some millions of rows on.
    """

    def __init__(self, path: Path, rows: Rows, batches: Iterable[pa.RecordBatch]) -> None:
        """`path` is where the file is until this is closed; `rows` are ascending, each once, and `batches` have each
        of them once, in any order, with the columns `row` and `signature`. Raises OSError when the disk is full."""
        self._path = path
        self._rows = rows
        self._file_rows: Indexes = np.empty(len(rows), np.int64)
        count = 0
        with writing(path), path.open("wb") as file:
            for batch in batches:
                self._file_rows[np.searchsorted(rows, batch["row"].to_numpy())] = count + np.arange(batch.num_rows)
                count += batch.num_rows
                file.write(b"".join(batch["signature"].to_pylist()))
        assert count == len(rows), f"found {count} signatures, expected those of {len(rows)} rows"
        self._file = path.open("rb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        self._path.unlink()

    def of(self, rows: Rows) -> npt.NDArray[np.uint32]:
        """The signatures of rows, of which any may be equal: shape (len(rows), PERMUTATIONS)."""
        distinct, which = np.unique(rows, return_inverse=True)
        positions = self._file_rows[np.searchsorted(self._rows, distinct)].tolist()
        # Not mapped: what is read of a mapping counts as memory of the process for as long as it is there.
        read = b"".join(
            [os.pread(self._file.fileno(), SIGNATURE_BYTES, position * SIGNATURE_BYTES) for position in positions]
        )
        return np.frombuffer(read, np.uint32).reshape(-1, minhash.PERMUTATIONS)[which]


class Clusters:
    """Which of many rows are connected, directly or through others; each is alone at first.

    Connections come a few at a time. A forest of disjoint sets (Tarjan 1975) over numpy arrays: memory holds 16 bytes
    for each row, however many connections there are. A set is known by its smallest row.
    """

    def __init__(self, rows: Rows) -> None:
        """`rows` are ascending, each once."""
        self.rows = rows
        self._above: Indexes = np.arange(len(rows))
        """For each row the place of a row of its cluster that is not larger: its own where it is the smallest."""

    def connect(self, first: Rows, others: Rows) -> None:
        """Each row of `first` is connected with the row of `others` at its place; both are rows of these."""
        these = np.searchsorted(self.rows, first)
        those = np.searchsorted(self.rows, others)
        while len(these):
            these = self._shortened(these)
            those = self._shortened(those)
            apart = these != those
            these = these[apart]
            those = those[apart]
            # One of several connections of a row counts, the others in the next round. A row is never put below a
            # larger one, so there is no circle.
            np.minimum.at(self._above, np.maximum(these, those), np.minimum(these, those))

    def of(self, rows: Rows) -> Rows:
        """The smallest row of the cluster of each of these rows."""
        return np.asarray(self.rows[self._shortened(np.searchsorted(self.rows, rows))])

    def distinct(self, first: Rows, others: Rows) -> tuple[Rows, Rows]:
        """Each pair of a row of `first` and the row of `others` at its place, once."""
        these = np.searchsorted(self.rows, first)
        those = np.searchsorted(self.rows, others)
        # As one number, which is sorted twenty times faster than pairs: two places have less than 63 bits.
        these, those = np.divmod(np.unique(these * len(self.rows) + those), max(len(self.rows), 1))
        return self.rows[these], self.rows[those]

    def firsts(self) -> Iterator[tuple[Rows, Rows]]:
        """The rows, some at a time in their order, and for each the smallest row of its cluster."""
        for begin in range(0, len(self.rows), PLACES_AT_ONCE):
            indexes = np.arange(begin, min(begin + PLACES_AT_ONCE, len(self.rows)))
            yield self.rows[indexes], self.rows[self._shortened(indexes)]

    def _shortened(self, indexes: Indexes) -> Indexes:
        """The smallest place of the cluster of each place, which is directly above it from now on."""
        smallest = self._above[indexes]
        while not np.array_equal(further := self._above[smallest], smallest):
            smallest = further
        self._above[indexes] = smallest
        return smallest
