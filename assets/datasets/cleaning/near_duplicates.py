"""Near-duplicates: which documents are nearly the same, among any number of them, in bounded memory.

Documents that share a band are candidates; two candidates whose signatures agree in a share of at least `similarity`
are connected; a cluster is a set of documents that are connected, directly or through others. The clusters depend on
the documents alone, not on their order or numbers. Two documents of Jaccard similarity s are candidates with the
probability that `minhash` states, and connected if their signatures' estimate of s reaches the threshold too.
"""

from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slipway.assets.datasets.cleaning import minhash
from slipway.assets.datasets.cleaning.clusters import Clusters, Places, Rows
from slipway.assets.datasets.cleaning.shared_bands import Bands, SharedBands
from slipway.assets.datasets.cleaning.signature_file import SignatureFile

ROWS_AT_ONCE = 16_384
"""Rows whose bands are read at once: 2 MB of them at 0.8, and 15 MB at a similarity of 0.3."""
PAIRS_AT_ONCE = 16_384
"""Candidate pairs that are verified at once: 15 MB of signatures."""
_FIRSTS = pa.schema([pa.field("row", pa.int64()), pa.field("first", pa.int64())])


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


def _signatures(connection: duckdb.DuckDBPyConnection, features: str, rows: Rows, path: Path) -> SignatureFile:
    """The signatures of these rows, once, because there may be many rounds, and `features` may be read from files."""
    connection.register("_candidates", pa.table({"row": rows}))
    wanted = f"select row::bigint as row, signature from {features} where row in (select row from _candidates)"
    made = SignatureFile(path, rows, connection.sql(wanted).to_arrow_reader(ROWS_AT_ONCE))
    connection.unregister("_candidates")
    return made


def _compare(buckets: Bands, rows: Rows, clusters: Clusters, signatures: SignatureFile, similarity: float) -> None:
    """Connect the rows of each bucket that are similar enough; the rows of a bucket are one after the other."""
    while len(rows):
        own = clusters.of(rows)
        first, size = _runs(buckets)
        mixed = np.repeat(np.minimum.reduceat(own, first) < np.maximum.reduceat(own, first), size)
        rows, buckets = rows[mixed], buckets[mixed]
        first, size = _runs(buckets)
        leaders = np.repeat(rows[first], size)
        for begin in range(0, len(rows), PAIRS_AT_ONCE):
            some = slice(begin, begin + PAIRS_AT_ONCE)
            _connect_similar(clusters, signatures, similarity, leaders[some], rows[some])
        rows, buckets = np.delete(rows, first), np.delete(buckets, first)


def _connect_similar(
    clusters: Clusters, signatures: SignatureFile, similarity: float, leaders: Rows, others: Rows
) -> None:
    """Connect those of the pairs that are similar enough; a pair that is connected already is not compared."""
    apart = clusters.of(leaders) != clusters.of(others)
    leaders, others = clusters.distinct(leaders[apart], others[apart])
    similar = minhash.similarity(signatures.of(leaders), signatures.of(others)) >= similarity
    clusters.connect(leaders[similar], others[similar])


def _runs(sorted_values: npt.NDArray[np.uint64]) -> tuple[Places, Places]:
    """The place of the first of each run of equal values, and the length of the run."""
    first = np.flatnonzero(np.append(True, sorted_values[1:] != sorted_values[:-1])[: len(sorted_values)])
    return first, np.diff(np.append(first, len(sorted_values)))
