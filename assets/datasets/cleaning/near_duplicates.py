"""Near-duplicates: which documents are nearly the same, among any number of them, in bounded memory.

Documents that share a band are candidates; two candidates whose signatures agree in a share of at least `similarity`
are connected; a cluster is a set of documents that are connected, directly or through others. The clusters depend on
the documents alone, not on their order or numbers. Two documents of Jaccard similarity s are candidates with the
probability that `minhash` states, and connected if their signatures' estimate of s reaches the threshold too.
"""

from collections.abc import Iterator

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from assets.datasets.cleaning import minhash

PAIRS_AT_ONCE = 16_384
"""Candidate pairs that are verified at once: 15 MB of signatures."""

Rows = npt.NDArray[np.int64]


def duplicates(connection: duckdb.DuckDBPyConnection, features: str, similarity: float) -> pa.Table:
    """The rows that are in a cluster with a smaller row: columns `row` and `first`, the smallest row of the cluster.

    Both are int64, ascending by `row`; a row that is not in the table is alone, or the first of its cluster.
    `features` names a relation of the connection with the columns `row` (distinct, below 2^63), `bands` (a list of
    uint64) and `signature` (a blob: `minhash.Signature` in bytes). duckdb does the joins within its
    `memory_limit` and spills to its `temp_directory`; in addition memory holds about 100 bytes for each row that has a
    candidate, and 16 for each connected pair.

    A pair is compared unless its two rows are known to be connected, so n copies of a page cost n comparisons and not
    n^2: in each round the smallest row of each bucket (the rows that share a band) is compared with all others there
    and leaves the bucket; a bucket is done when all its remaining rows are connected.
    """
    connection.execute(f"""
        create or replace temp table _members as
            with members as (select row, unnest(bands) as bucket from {features})
            select row, bucket from members
            where bucket in (select bucket from members group by bucket having count(*) > 1)
    """)
    rows = connection.execute("select distinct row from _members order by row").fetchnumpy()["row"].astype(np.int64)
    clusters = np.arange(len(rows))
    try:
        while _drop_finished_buckets(connection, rows, clusters):
            clusters = _merged(clusters, rows, list(_connected(connection, features, similarity)))
            _drop_leaders(connection)
    finally:
        connection.execute("drop table _members; drop table if exists _clusters")
    first = rows[clusters]
    return pa.table({"row": rows[first < rows], "first": first[first < rows]})


def _drop_finished_buckets(connection: duckdb.DuckDBPyConnection, rows: Rows, clusters: Rows) -> bool:
    """Keep only the buckets with rows of more than one cluster; returns whether there are any."""
    known = pa.table({"row": rows, "cluster": clusters})
    connection.register("_known", known)
    connection.execute("create or replace temp table _clusters as select * from _known")
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
    return bool(left)


def _connected(connection: duckdb.DuckDBPyConnection, features: str, similarity: float) -> Iterator[tuple[Rows, Rows]]:
    """The pairs of a bucket's smallest row and a row of another cluster that are similar enough."""
    pairs = connection.sql(f"""
        with leaders as (select bucket, min(row) as leader from _members group by bucket),
        pairs as (
            select distinct leader, row
            from _members join leaders using (bucket) join _clusters as its using (row)
            join _clusters as theirs on theirs.row = leader
            where its.cluster <> theirs.cluster
        )
        select leader, pairs.row, ours.signature as signature, others.signature as other
        from pairs join {features} as ours on ours.row = pairs.row join {features} as others on others.row = leader
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


def _merged(clusters: Rows, rows: Rows, edges: list[tuple[Rows, Rows]]) -> Rows:
    """The clusters after these pairs of rows are connected: for each row, the place of the smallest row of its
    cluster."""
    if not edges:
        return clusters
    # Imported here, because every process of Dagster loads this module and few of them compare documents.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ours, others = (np.searchsorted(rows, np.concatenate(ends)) for ends in zip(*edges, strict=True))
    count = len(rows)
    sources = np.concatenate([np.arange(count), ours])
    targets = np.concatenate([clusters, others])
    graph = coo_array((np.ones(len(sources), np.bool_), (sources, targets)), shape=(count, count))
    _, labels = connected_components(graph, directed=False)
    _, smallest = np.unique(labels, return_index=True)
    return np.asarray(smallest[labels], np.int64)


def _matrix(signatures: pa.Array) -> npt.NDArray[np.uint32]:
    """The signatures of a column, shape (rows, PERMUTATIONS)."""
    return np.frombuffer(b"".join(signatures.to_pylist()), np.uint32).reshape(-1, minhash.PERMUTATIONS)
