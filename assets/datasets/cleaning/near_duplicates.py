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
    `memory_limit` and spills to its `temp_directory`, and bands wait in `folder`; in addition memory holds 16 bytes for
    each row that has a candidate, and 16 for each of the result.

    A pair is compared unless its two rows are known to be connected, so n copies of a page cost n comparisons and not
    n^2: in each round the smallest row of each bucket (the rows that share a band) is compared with all others there
    and leaves the bucket; a bucket is done when all its remaining rows are connected. duckdb does the rounds until few
    rows are left; these, of which there may be many rounds, are compared in memory.
    """
    _find_members(connection, features, folder)
    # Once, because there may be many rounds, and `features` may be read from files.
    connection.execute(f"""
        create or replace temp table _signatures as
            select row, signature from {features} where row in (select row from _members)
    """)
    batches = connection.sql("select distinct row::bigint as row from _members order by row").to_arrow_reader()
    clusters = Clusters(np.concatenate([np.empty(0, np.int64), *(batch["row"].to_numpy() for batch in batches)]))
    try:
        while (left := _drop_finished_buckets(connection, clusters)) > IN_MEMORY:
            for ours, others in _connected(connection, similarity):
                clusters.connect(ours, others)
            _drop_leaders(connection)
        if left:
            _finish(connection, clusters, similarity)
    finally:
        connection.execute("drop table _members; drop table _signatures; drop table if exists _clusters")
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


def _connected(connection: duckdb.DuckDBPyConnection, similarity: float) -> Iterator[tuple[Rows, Rows]]:
    """The pairs of a bucket's smallest row and a row of another cluster that are similar enough."""
    pairs = connection.sql("""
        with leaders as (select bucket, min(row) as leader from _members group by bucket),
        pairs as (
            select distinct leader, row
            from _members join leaders using (bucket) join _clusters as its using (row)
            join _clusters as theirs on theirs.row = leader
            where its.cluster <> theirs.cluster
        )
        select leader, pairs.row, ours.signature as signature, others.signature as other
        from pairs join _signatures as ours on ours.row = pairs.row join _signatures as others on others.row = leader
    """)
    for batch in pairs.to_arrow_reader(PAIRS_AT_ONCE):
        similar = minhash.similarity(_matrix(batch["signature"]), _matrix(batch["other"])) >= similarity
        leaders, rows = (batch[name].to_numpy(zero_copy_only=False).astype(np.int64) for name in ("leader", "row"))
        yield leaders[similar], rows[similar]


def _drop_leaders(connection: duckdb.DuckDBPyConnection) -> None:
    """Remove from each bucket its smallest row, which was compared with all others."""
    connection.execute("""
        create or replace temp table _members as
            select row, bucket from _members join (select bucket, min(row) as leader from _members group by bucket)
            using (bucket) where row <> leader
    """)


def _finish(connection: duckdb.DuckDBPyConnection, clusters: Clusters, similarity: float) -> None:
    """The rounds of the members that are left, in memory."""
    members = connection.sql("select row::bigint as row, bucket from _members order by bucket, row").to_arrow_table()
    rows, buckets = (members[name].to_numpy() for name in ("row", "bucket"))
    wanted = (
        "select row::bigint as row, signature from _signatures where row in (select row from _members) order by row"
    )
    signatures = connection.sql(wanted).to_arrow_table()
    known, matrix = signatures["row"].to_numpy(), _matrix(signatures["signature"])
    while len(rows):
        own = clusters.of(rows)
        first, size = _runs(buckets)
        mixed = np.repeat(np.minimum.reduceat(own, first) < np.maximum.reduceat(own, first), size)
        rows, buckets, own = rows[mixed], buckets[mixed], own[mixed]
        first, size = _runs(buckets)
        apart = own != np.repeat(own[first], size)
        pairs = np.unique(np.stack([np.repeat(rows[first], size)[apart], rows[apart]]), axis=1)
        for begin in range(0, pairs.shape[1], PAIRS_AT_ONCE):
            leaders, others = pairs[:, begin : begin + PAIRS_AT_ONCE]
            ours, theirs = (matrix[np.searchsorted(known, each)] for each in (leaders, others))
            similar = minhash.similarity(ours, theirs) >= similarity
            clusters.connect(leaders[similar], others[similar])
        rows, buckets = np.delete(rows, first), np.delete(buckets, first)


def _runs(sorted_values: npt.NDArray[np.uint64]) -> tuple[Places, Places]:
    """The place of the first of each run of equal values, and the length of the run."""
    first = np.flatnonzero(np.append(True, sorted_values[1:] != sorted_values[:-1])[: len(sorted_values)])
    return first, np.diff(np.append(first, len(sorted_values)))


def _matrix(signatures: pa.Array) -> npt.NDArray[np.uint32]:
    """The signatures of a column, shape (rows, PERMUTATIONS)."""
    return np.frombuffer(b"".join(signatures.to_pylist()), np.uint32).reshape(-1, minhash.PERMUTATIONS)
