"""Warehouse: SQL by duckdb, in this process, over documents tables, on the Parquet files themselves.

Every function returns plain values and keeps nothing between calls, so that there is no server and no state. What is
asked of files is answered in bounded memory, however many documents they have: duckdb spills the rest to disk.
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
"""duckdb's threads share that memory; with less than about 64 MB for each it fails instead of spilling."""
INTERRUPTED = "Query interrupted"
"""What duckdb says of a query that it ended itself because of a signal."""
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
    """How many documents one rule left out, and the first of them."""

    reason: str
    documents: int
    examples: tuple[str, ...]
    """Their names."""
    because: str | None
    """What shows it for the first one; None where the text itself does, and for a table of an earlier version."""


@dataclass(frozen=True)
class TableStatistics:
    """What a documents table holds. Figures are of the kept documents, except `rows` and `removals`."""

    rows: int
    documents: int
    bytes: int
    masked: int
    """Places that were replaced by a placeholder, in all rows."""
    splits: tuple[Total, ...]
    packages: tuple[Total, ...]
    """The largest top-level folders by bytes."""
    languages: tuple[Total, ...]
    lengths: tuple[tuple[int, int], ...]
    """Documents by length: (bytes from which a bin counts, a power of two; documents up to twice that)."""
    removals: tuple[RemovalCount, ...]


@dataclass(frozen=True)
class Changes:
    """Documents of two tables, paired by name: how many of each kind, and some names."""

    added: int
    removed: int
    changed: int
    same: int
    examples: dict[str, tuple[str, ...]]


@contextlib.contextmanager
def connect(
    spill: Path | None = None, memory: str = MEMORY, threads: int = THREADS
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A duckdb of its own in bounded memory. It spills to a folder that exists only meanwhile: `spill`, or one among
    the temporary files.

    A signal that asks the process to end, such as Ctrl-C, ends the query that runs: KeyboardInterrupt, unless the
    signal's own handler raises something else.
    """
    try:
        with contextlib.ExitStack() as stack, duckdb.connect() as connection:
            folder = spill or stack.enter_context(scratch.folder("slipway-rows"))
            connection.execute(f"SET memory_limit = '{memory}'")
            connection.execute("SET temp_directory = ?", [str(folder)])
            connection.execute(f"SET threads = {min(threads, len(os.sched_getaffinity(0)))}")
            connection.execute("SET preserve_insertion_order = false")
            connection.execute("SET enable_progress_bar = true")  # for those who ask how far a query is
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
    """Statistics of a documents table. Raises duckdb.Error for a file that is no such table."""
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
    """What each rule left out, the most first."""
    with connect() as connection:
        columns = connection.execute("DESCRIBE FROM read_parquet($table)", {"table": str(table)})
        there = "because" in {name for name, *_ in columns.fetchall()}
        query = REMOVED.format(evidence="arg_min_null(because, (name, number))" if there else "NULL")
        rows = connection.execute(query, {"table": str(table)}).fetchall()
    return tuple(RemovalCount(reason, count, tuple(names), because) for reason, count, names, because in rows)


def documents_in_both_splits(table: Path) -> int:
    """How many texts are kept on both sides of the split."""
    with connect() as connection:
        row = connection.execute(SHARED, {"table": str(table)}).fetchone()
    assert row is not None
    return int(row[0])


def changes(old: Path, new: Path, by: Sequence[str] = ("blake3",), examples: int = 5) -> Changes:
    """How the kept documents differ between two tables; a document has changed when a column of `by` has."""
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
    """Population stability index of two histograms of (bin, count): 0 for equal ones; above 0.25 means drift.

    The sum of (p - q) ln(p / q) over the bins (Siddiqi 2006, Credit Risk Scorecards, ch. 9). Every bin is counted
    one half higher, so that an empty one gives no infinity.
    """
    before, after = dict(old), dict(new)
    bins = before.keys() | after.keys()
    p, q = (_shares(counts, bins) for counts in (before, after))
    return sum((q[bucket] - p[bucket]) * log(q[bucket] / p[bucket]) for bucket in bins)


def _shares(counts: dict[Any, int], bins: Set[Any]) -> dict[Any, float]:
    total = sum(counts.values()) + len(bins) / 2
    return {bucket: (counts.get(bucket, 0) + 0.5) / total for bucket in bins}
