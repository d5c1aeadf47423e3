"""Warehouse: SQL over documents tables, with duckdb in this process, directly on the Parquet files.

Every function returns plain values and keeps nothing between calls, so there is no server and no state. Memory is
bounded, however many documents a table has: duckdb spills to disk.
"""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import duckdb

from slipway.trainer.base import scratch

MEMORY = "512MB"
"""The memory that duckdb may use before it spills to disk."""
THREADS = 4
"""duckdb's threads share that memory. With less than about 64 MB per thread, duckdb fails instead of spilling."""
INTERRUPTED = "Query interrupted"
"""duckdb's message for a query that it ended itself because of a signal."""
INTERRUPTING = frozenset({signal.SIGINT, signal.SIGTERM})
INTERRUPT_SECONDS = 0.1
"""Between two interrupts of a connection: one that arrives before a query begins does not end it."""
KEPT_ROWS = "read_parquet($table) WHERE removed IS NULL"
SPLITS = f"SELECT split, count(*), sum(bytes)::BIGINT FROM {KEPT_ROWS} GROUP BY split ORDER BY split"
TOP = (
    "SELECT {column}, count(*), sum(bytes)::BIGINT AS size FROM "
    + KEPT_ROWS
    + " GROUP BY 1 ORDER BY size DESC, 1 LIMIT $top"
)
LENGTHS = f"""
    SELECT CAST(2 ** floor(log2(greatest(bytes, 1))) AS BIGINT) AS shortest, count(*) FROM {KEPT_ROWS}
    GROUP BY shortest ORDER BY shortest
"""
REMOVED = """
    SELECT removed, count(*) AS documents, arg_min(name || '#' || number, (name, number), 3), {evidence}
    FROM read_parquet($table) WHERE removed IS NOT NULL GROUP BY removed ORDER BY documents DESC, removed
"""
TOTALS = "SELECT count(*), coalesce(sum(masked), 0)::BIGINT FROM read_parquet($table)"
SHARED = "SELECT count(*) FROM (SELECT blake3 FROM " + KEPT_ROWS + " GROUP BY blake3 HAVING count(DISTINCT split) > 1)"
CHANGES = """
    WITH old AS (SELECT * FROM read_parquet($old) WHERE removed IS NULL),
         new AS (SELECT * FROM read_parquet($new) WHERE removed IS NULL),
         paired AS (
             SELECT coalesce(new.name, old.name) AS name, coalesce(new.number, old.number) AS number,
                    CASE WHEN old.name IS NULL THEN 'added' WHEN new.name IS NULL THEN 'removed'
                         WHEN ({old}) <> ({new}) THEN 'changed' ELSE 'same' END AS change
             FROM old FULL JOIN new ON old.name = new.name AND old.number = new.number
         )
    SELECT change, count(*), arg_min(name || '#' || number, (name, number), $examples) FROM paired GROUP BY change
"""


@dataclass(frozen=True)
class Total:
    """Documents and bytes of text under one heading."""

    name: str
    documents: int
    bytes: int


@dataclass(frozen=True)
class RemovalCount:
    """The number of documents that one rule removed, with examples."""

    reason: str
    documents: int
    examples: tuple[str, ...]
    """The names of the first documents."""
    because: str | None
    """The evidence for the first one; None if the text itself shows it, or for a table of an earlier version."""


@dataclass(frozen=True)
class TableStatistics:
    """Statistics of a documents table. They cover the kept documents, except `rows`, `masked` and `removals`."""

    rows: int
    documents: int
    bytes: int
    masked: int
    """The number of passages that a placeholder replaced, in all rows."""
    splits: tuple[Total, ...]
    packages: tuple[Total, ...]
    """The largest top-level folders by bytes."""
    languages: tuple[Total, ...]
    lengths: tuple[tuple[int, int], ...]
    """A histogram of document lengths: (lower bound of the bin in bytes, a power of two; number of documents)."""
    removals: tuple[RemovalCount, ...]


@dataclass(frozen=True)
class Changes:
    """The difference of two documents tables, paired by name: counts, and example names for each kind of change."""

    added: int
    removed: int
    changed: int
    same: int
    examples: dict[str, tuple[str, ...]]


@contextlib.contextmanager
def connect(
    spill: Path | None = None, memory: str = MEMORY, threads: int = THREADS
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A new duckdb with bounded memory. It spills to the folder `spill`, or to a temporary one.

    A signal that asks the process to end, such as Ctrl-C, ends the running query: this raises KeyboardInterrupt, or the
    error of the signal's own handler.
    """
    try:
        with contextlib.ExitStack() as stack, duckdb.connect() as connection:
            folder = spill or stack.enter_context(scratch.folder("slipway-rows"))
            connection.execute(f"SET memory_limit = '{memory}'")
            connection.execute("SET temp_directory = ?", [str(folder)])
            connection.execute(f"SET threads = {min(threads, len(os.sched_getaffinity(0)))}")
            connection.execute("SET preserve_insertion_order = false")
            connection.execute("SET enable_progress_bar = true")  # so that callers can read the progress of a query
            connection.execute("SET enable_progress_bar_print = false")
            stack.enter_context(_interrupted_by_signals(connection))
            yield connection
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except RuntimeError as error:
        if str(error) == INTERRUPTED:
            raise KeyboardInterrupt from error
        raise


@contextlib.contextmanager
def _interrupted_by_signals(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupt the connection when this process gets SIGINT or SIGTERM.

    duckdb looks for signals only between the tasks that it runs in the calling thread: while other threads run them, or
    during a task that is long, a query goes on to its end. So another thread hears of the signal, by the descriptor to
    which Python writes each one that it handles. Python handles signals in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    earlier = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    over = threading.Event()

    def listen() -> None:
        while numbers := reader.recv(64):
            if earlier != -1:
                with contextlib.suppress(OSError):
                    os.write(earlier, numbers)
            if INTERRUPTING.intersection(numbers):
                while not over.is_set():
                    connection.interrupt()
                    over.wait(INTERRUPT_SECONDS)

    listener = threading.Thread(target=listen, name="query signals", daemon=True)
    listener.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(earlier)
        writer.close()
        listener.join()
        reader.close()


def statistics(table: Path, top: int = 10) -> TableStatistics:
    """Statistics of a documents table. Raises duckdb.Error if the file is not such a table."""
    with connect() as connection:

        def ask(query: str, **values: Any) -> list[tuple[Any, ...]]:
            return list(connection.execute(query, {"table": str(table), **values}).fetchall())

        splits = tuple(Total(*row) for row in ask(SPLITS))
        rows, masked = ask(TOTALS)[0]
        return TableStatistics(
            rows=rows,
            documents=sum(split.documents for split in splits),
            bytes=sum(split.bytes for split in splits),
            masked=masked,
            splits=splits,
            packages=tuple(Total(*row) for row in ask(TOP.format(column="package"), top=top)),
            languages=tuple(Total(*row) for row in ask(TOP.format(column="language"), top=top)),
            lengths=tuple((shortest, count) for shortest, count in ask(LENGTHS)),
            removals=removals(table),
        )


def kept_total(table: Path) -> Total:
    """The kept documents of both splits and their bytes."""
    with connect() as connection:
        result = connection.execute(
            f"SELECT count(*), coalesce(sum(bytes), 0)::BIGINT FROM {KEPT_ROWS}", {"table": str(table)}
        )
        documents, size = result.fetchall()[0]
    return Total("kept", documents, size)


def removals(table: Path) -> tuple[RemovalCount, ...]:
    """The documents that each rule removed, the largest number first."""
    with connect() as connection:
        columns = connection.execute("DESCRIBE FROM read_parquet($table)", {"table": str(table)})
        there = "because" in {name for name, *_ in columns.fetchall()}
        query = REMOVED.format(evidence="arg_min_null(because, (name, number))" if there else "NULL")
        rows = connection.execute(query, {"table": str(table)}).fetchall()
    return tuple(RemovalCount(reason, count, tuple(names), because) for reason, count, names, because in rows)


def documents_in_both_splits(table: Path) -> int:
    """The number of texts that were kept in both splits."""
    with connect() as connection:
        row = connection.execute(SHARED, {"table": str(table)}).fetchone()
    assert row is not None
    return int(row[0])


def changes(old: Path, new: Path, by: Sequence[str] = ("blake3",), examples: int = 5) -> Changes:
    """The difference between the kept documents of two tables. A document has changed if a column in `by` differs."""
    query = CHANGES.format(**{side: ", ".join(f"{side}.{column}" for column in by) for side in ("old", "new")})
    with connect() as connection:
        values = {"old": str(old), "new": str(new), "examples": examples}
        rows = connection.execute(query, values).fetchall()
    counts = {change: count for change, count, _ in rows}
    return Changes(
        added=counts.get("added", 0),
        removed=counts.get("removed", 0),
        changed=counts.get("changed", 0),
        same=counts.get("same", 0),
        examples={change: tuple(names) for change, _, names in rows if change != "same"},
    )


def stability_index(old: Sequence[tuple[Any, int]], new: Sequence[tuple[Any, int]]) -> float:
    """Population stability index of two histograms of (bin, count): 0 if they are equal; above 0.25 means drift.

    The sum of (p - q) ln(p / q) over the bins (Siddiqi 2006, Credit Risk Scorecards, ch. 9). One half is added to every
    bin, so that an empty bin does not give infinity.
    """
    before = dict(old)
    after = dict(new)
    bins = before.keys() | after.keys()
    p, q = (_shares(counts, bins) for counts in (before, after))
    return sum((q[bucket] - p[bucket]) * log(q[bucket] / p[bucket]) for bucket in bins)


def _shares(counts: dict[Any, int], bins: Set[Any]) -> dict[Any, float]:
    total = sum(counts.values()) + len(bins) / 2
    return {bucket: (counts.get(bucket, 0) + 0.5) / total for bucket in bins}
