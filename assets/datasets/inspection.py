"""Inspection: the decisions on the documents of a dataset's snapshot, with examples and evidence, for a person."""

from dataclasses import dataclass
from pathlib import Path

from slipway.assets.datasets.documents import document_table, extracts, quarantine
from slipway.assets.datasets.documents.extracts import segments
from slipway.assets.datasets.documents.quarantine import LeftOutFile
from slipway.resources import warehouse
from slipway.resources.warehouse import Total
from slipway.trainer.data.shards import TextSnapshot
from slipway.trainer.data.snapshots import Snapshot

EXAMPLES = """
    SELECT name || '#' || number, blake3, {because} FROM read_parquet($table) WHERE removed = $reason
    ORDER BY hash(name, number) LIMIT $most
"""

EXCERPT_LENGTH = 160
"""The most characters of an excerpt."""
FIRST_CHARACTERS = """
    SELECT text FROM read_parquet($segments, filename = 'segment_file') d
    JOIN read_parquet($index) e ON e.name = d.file AND e.segment = parse_filename(d.segment_file, true)
    WHERE d.file = $file AND d.number = $number AND ($blake3 IS NULL OR d.blake3 = $blake3)
"""


@dataclass(frozen=True)
class LeftOutExample:
    """A document that was left out."""

    document: str
    because: str
    """The evidence; empty if the text itself is the evidence."""
    begins: str
    """The beginning of its text; empty for an image, and if the cache of texts does not contain it any more."""


@dataclass(frozen=True)
class LeftOutDocuments:
    """The documents that were left out for one reason, with some examples."""

    reason: str
    documents: int
    examples: tuple[LeftOutExample, ...]


@dataclass(frozen=True)
class Inspection:
    """A snapshot's documents."""

    dataset: str
    snapshot: str
    rows: int
    """The number of documents, including unreadable ones."""
    remaining: int
    bytes: int
    splits: tuple[Total, ...]
    languages: tuple[Total, ...]
    """The largest languages by bytes; empty for images."""
    removals: tuple[LeftOutDocuments, ...]
    files_left_out: tuple[LeftOutFile, ...]
    """Files that the last listing of the source left out, independent of the snapshot."""


def inspect(durable: Path, snapshot: Snapshot, examples: int = 3, reason: str = "") -> Inspection:
    """Inspect the documents of a snapshot, with `examples` for each reason, or only for `reason`.

    Raises ValueError if the documents table is gone, and for a reason without documents.
    """
    table = document_table.path(durable, snapshot.documents["blake3"])
    if not table.exists():
        raise ValueError(f"{table}: found no documents table there, expected that of snapshot {snapshot.sha256[:12]}")
    all_removals = warehouse.removals(table)
    if reason and reason not in {removal.reason for removal in all_removals}:
        there = "; ".join(removal.reason for removal in all_removals) or "none"
        raise ValueError(f"reason {reason}: found no document that was left out for it, expected one of {there}")
    texts = isinstance(snapshot, TextSnapshot)
    statistics = warehouse.statistics(table) if texts else None
    remaining = warehouse.kept_total(table)
    index = extracts.newest(durable, snapshot.dataset)
    removals = tuple(
        LeftOutDocuments(
            removal.reason, removal.documents, _examples(table, removal.reason, examples, index, durable, texts)
        )
        for removal in all_removals
        if reason in ("", removal.reason)
    )
    return Inspection(
        snapshot.dataset,
        snapshot.sha256,
        remaining.documents + sum(removal.documents for removal in all_removals),
        remaining.documents,
        remaining.bytes,
        statistics.splits if statistics else (),
        statistics.languages if statistics else (),
        removals,
        tuple(quarantine.left_out_files(durable, snapshot.dataset)),
    )


def _examples(
    table: Path, reason: str, most: int, index: Path, durable: Path, texts: bool
) -> tuple[LeftOutExample, ...]:
    with warehouse.connect() as connection:
        columns = {name for name, *_ in connection.execute("DESCRIBE FROM read_parquet(?)", [str(table)]).fetchall()}
        query = EXAMPLES.format(because="coalesce(because, '')" if "because" in columns else "''")
        rows = connection.execute(query, {"table": str(table), "reason": reason, "most": most}).fetchall()
    begins = texts and index.exists()
    return tuple(
        LeftOutExample(document, because, first_characters(index, durable, document, blake3) if begins else "")
        for document, blake3, because in rows
    )


def first_characters(index: Path, durable: Path, document: str, blake3: str | None = None) -> str:
    """The beginning of a document, named `<file>#<number>`, on one line.

    Empty for a document without a text, and if the cache of texts does not contain it with this BLAKE3 any more: an
    older snapshot has documents that are no longer in the source.
    """
    file, _, number = document.rpartition("#")
    paths = [str(path) for path in segments(index, durable, file) if path.exists()]
    if not paths:
        return ""
    values = {"segments": paths, "index": str(index), "file": file, "number": int(number), "blake3": blake3}
    with warehouse.connect() as connection:
        row = connection.execute(FIRST_CHARACTERS, values).fetchone()
    return in_a_cell(row[0] if row and row[0] else "")


def in_a_cell(text: str) -> str:
    """The beginning of a text on one line, for a cell of a Markdown table."""
    line = " ".join(text.split())
    return (line[:EXCERPT_LENGTH] + "…" if len(line) > EXCERPT_LENGTH else line).replace("|", "\\|")
