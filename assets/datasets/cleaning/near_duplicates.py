"""Near-duplicates: which documents are nearly the same, among any number of them, in bounded memory.

Documents that share a band are candidates; two candidates whose signatures agree in a share of at least `similarity`
are connected; a cluster is a set of documents that are connected, directly or through others. The clusters depend on
the documents alone, not on their order or numbers. Two documents of Jaccard similarity s are candidates with the
probability that `minhash` states, and connected if their signatures' estimate of s reaches the threshold too.
"""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from assets.datasets.cleaning import minhash
from assets.datasets.cleaning.clusters import Clusters, Places, Rows
from assets.datasets.cleaning.repeated import RepeatedHashes
from assets.datasets.cleaning.signature_file import SignatureFile

ROWS_AT_ONCE = 16_384
"""Rows whose bands are read at once: 2 MB of them at 0.8, and 15 MB at a similarity of 0.3."""
PAIRS_AT_ONCE = 16_384
"""Candidate pairs that are verified at once: 15 MB of signatures."""
IN_MEMORY = 65_536
"""Members of buckets that are compared in memory: at most 30 MB of signatures."""
_BUCKETS = pa.schema([pa.field("bucket", pa.uint64())])
_FIRSTS = pa.schema([pa.field("row", pa.int64()), pa.field("first", pa.int64())])


def duplicates(connection: duckdb.DuckDBPyConnection, features: str, similarity: float, folder: Path) -> pa.Table:
    """The rows that are in a cluster with a smaller row: columns `row` and `first`, the smallest row of the cluster.

    Both are int64, ascending by `row`; a row that is not in the table is alone, or the first of its cluster.
    `features` names a relation of the connection with the columns `row` (distinct, below 2^63), `bands` (a list of
    uint64) and `signature` (a blob: `minhash.Signature` in bytes). duckdb does the joins within its
    `memory_limit` and spills to its `temp_directory`, and bands and signatures wait in `folder`; in addition memory
    holds 24 bytes for each row that has a candidate, and 16 for each of the result.

    A pair is compared unless its two rows are known to be connected, so n copies of a page cost n comparisons and not
    n^2: in each round the smallest row of each bucket (the rows that share a band) is compared with all others there
    and leaves the bucket; a bucket is done when all its remaining rows are connected. duckdb does the rounds until few
    rows are left; these, of which there may be many rounds, are compared in memory.
    """
    _find_members(connection, features, folder)
    batches = connection.sql("select distinct row::bigint as row from _members order by row").to_arrow_reader()
    clusters = Clusters(np.concatenate([np.empty(0, np.int64), *(batch["row"].to_numpy() for batch in batches)]))
    # Once, because there may be many rounds, and `features` may be read from files.
    wanted = f"select row::bigint as row, signature from {features} where row in (select row from _members)"
    waiting = connection.sql(wanted).to_arrow_reader(ROWS_AT_ONCE)
    with SignatureFile(folder / "signatures", clusters.rows, waiting) as signatures:
        try:
            while (left := _drop_finished_buckets(connection, clusters)) > IN_MEMORY:
                _compare_with_leaders(connection, clusters, signatures, similarity)
            if left:
                _finish(connection, clusters, signatures, similarity)
        finally:
            connection.execute("drop table _members; drop table if exists _leaders; drop table if exists _clusters")
    return pa.Table.from_batches(
        (batch.filter(pa.compute.less(batch["first"], batch["row"])) for batch in _batches(clusters)), _FIRSTS
    )


def _find_members(connection: duckdb.DuckDBPyConnection, features: str, folder: Path) -> None:
    """Make the table of the buckets with more than one row, and of their rows."""
    repeated = RepeatedHashes(folder / "bands")
    for batch in connection.sql(f"select bands from {features}").to_arrow_reader(ROWS_AT_ONCE):
        repeated.add(batch["bands"].flatten().to_numpy())
    found = (pa.record_batch([hashes], _BUCKETS) for hashes in repeated.found())
    connection.register("_found", pa.RecordBatchReader.from_batches(_BUCKETS, found))
    connection.execute("create or replace temp table _buckets as from _found")
    connection.unregister("_found")
    connection.execute(f"""
        create or replace temp table _members as
            with members as (select row, unnest(bands) as bucket from {features})
            select row, bucket from members where bucket in (from _buckets)
    """)
    connection.execute("drop table _buckets")


def _batches(clusters: Clusters) -> Iterator[pa.RecordBatch]:
    return (pa.record_batch([rows, firsts], _FIRSTS) for rows, firsts in clusters.firsts())


def _drop_finished_buckets(connection: duckdb.DuckDBPyConnection, clusters: Clusters) -> int:
    """Keep only the buckets with rows of more than one cluster; returns how many rows they have together."""
    connection.register("_known", pa.RecordBatchReader.from_batches(_FIRSTS, _batches(clusters)))
    connection.execute("create or replace temp table _clusters as select row, first as cluster from _known")
    connection.unregister("_known")
    connection.execute("""
        create or replace temp table _members as
            with mixed as (
                select bucket from _members join _clusters using (row)
                group by bucket having min(cluster) < max(cluster)
            )
            select row, bucket from _members where bucket in (from mixed)
    """)
    (left,) = connection.execute("select count(*) from _members").fetchall()[0]
    return int(left)


def _compare_with_leaders(
    connection: duckdb.DuckDBPyConnection, clusters: Clusters, signatures: SignatureFile, similarity: float
) -> None:
    """Compare the smallest row of each bucket with the others there, and remove it from the bucket."""
    connection.execute("""
        create or replace temp table _leaders as select bucket, min(row) as leader from _members group by bucket
    """)
    pairs = "from _members join _leaders using (bucket) where row <> leader"
    found = connection.sql(f"select leader::bigint as leader, row::bigint as row {pairs}")
    for batch in found.to_arrow_reader(PAIRS_AT_ONCE):
        # A pair that shares many bands comes as often; it is compared until it is connected.
        _connect_similar(clusters, signatures, similarity, batch["leader"].to_numpy(), batch["row"].to_numpy())
    connection.execute(f"create or replace temp table _members as select row, bucket {pairs}")


def _connect_similar(
    clusters: Clusters, signatures: SignatureFile, similarity: float, leaders: Rows, others: Rows
) -> None:
    """Connect those of the pairs that are similar enough; a pair that is connected already is not compared."""
    apart = clusters.of(leaders) != clusters.of(others)
    leaders, others = clusters.distinct(leaders[apart], others[apart])
    similar = minhash.similarity(signatures.of(leaders), signatures.of(others)) >= similarity
    clusters.connect(leaders[similar], others[similar])


def _finish(
    connection: duckdb.DuckDBPyConnection, clusters: Clusters, signatures: SignatureFile, similarity: float
) -> None:
    """The rounds of the members that are left, in memory."""
    members = connection.sql("select row::bigint as row, bucket from _members order by bucket, row").to_arrow_table()
    rows, buckets = (members[name].to_numpy() for name in ("row", "bucket"))
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


def _runs(sorted_values: npt.NDArray[np.uint64]) -> tuple[Places, Places]:
    """The place of the first of each run of equal values, and the length of the run."""
    first = np.flatnonzero(np.append(True, sorted_values[1:] != sorted_values[:-1])[: len(sorted_values)])
    return first, np.diff(np.append(first, len(sorted_values)))
