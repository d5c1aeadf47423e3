"""Takedown search: the documents that a takedown means, those nearly equal to them, and the snapshots with them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from assets.datasets.documents import extracts
from assets.datasets.documents.kind import DocumentKind
from assets.datasets.snapshots import history
from assets.datasets.snapshots.outcomes import table_of
from resources import warehouse
from trainer.base import listing
from trainer.base.paths import SNAPSHOTS
from trainer.data import snapshots
from trainer.data.mixtures import MixtureSnapshot

MEANT = """
    SELECT d.file || '#' || d.number, {identity}, d.blake3
    FROM read_parquet($segments, filename = 'segment_file', union_by_name = true) d
    JOIN read_parquet($index) e ON e.name = d.file AND e.segment = parse_filename(d.segment_file, true)
    WHERE d.blake3 IS NOT NULL AND ({of_url} OR d.file IN $documents OR d.file || '#' || d.number IN $documents)
    ORDER BY d.file, d.number
"""
NEARLY_EQUAL = """
    WITH documents AS (SELECT name || '#' || number AS document, because FROM read_parquet($table)
                       WHERE removed IS NULL OR removed LIKE '%duplicate%'),
    clusters AS (SELECT unnest($documents) UNION
                 SELECT because FROM documents WHERE document IN $documents AND because IS NOT NULL)
    SELECT document FROM documents
    WHERE (document IN (FROM clusters) OR because IN (FROM clusters)) AND document NOT IN $documents ORDER BY document
"""
KEPT = """
    SELECT count(*) FROM read_parquet($table)
    WHERE removed IS NULL AND (blake3 IN $hashes OR name || '#' || number IN $documents {or_url})
"""


@dataclass(frozen=True)
class MeantDocument:
    """A document of the source as it was read last."""

    name: str
    """File, `#`, and place in the file."""
    identity: str
    """BLAKE3 of its text as it was read."""
    blake3: str
    """BLAKE3 of its cleaned text."""


def meant(durable: Path, dataset: str, kind: DocumentKind, url: str, documents: Collection[str]) -> list[MeantDocument]:
    """The documents with this URL, and those named: a file, or a document of it as `file#number`.

    Raises ValueError when the dataset was never read, before documents had URLs, or when what was read is gone.
    """
    index = extracts.newest(durable, dataset)
    if not index.exists():
        raise ValueError(f"dataset {dataset}: found no documents; to read them: slipway data build {dataset}")
    paths = [str(path) for path in extracts.segments(index, durable)]
    has_urls = "url" in kind.table.names
    if gone := [path for path in paths if not Path(path).exists()]:
        raise ValueError(
            f"dataset {dataset}: found no file at {gone[0]}, expected texts as they were read last; to read them "
            f"again, first: slipway data build {dataset}"
        )
    query = MEANT.format(identity=kind.identity, of_url="coalesce(d.url = $url, false)" if has_urls else "false")
    values: dict[str, Any] = {"segments": paths, "index": str(index), "documents": list(documents)}
    values |= {"url": url or None} if has_urls else {}
    with warehouse.connect() as connection:
        try:
            return [MeantDocument(*row) for row in connection.execute(query, values).fetchall()]
        except duckdb.BinderException:
            raise ValueError(
                f"dataset {dataset}: it was read by a version that kept no URLs; first: slipway data build {dataset}"
            ) from None


def nearly_equal(durable: Path, snapshot: str, documents: Collection[str]) -> list[str]:
    """The documents that a snapshot's table has in one cluster of duplicates with these, without these."""
    table = table_of(snapshots.read(durable, snapshot), durable)
    with warehouse.connect() as connection:
        columns = [name for name, *_ in connection.execute("DESCRIBE FROM read_parquet(?)", [str(table)]).fetchall()]
        if "because" not in columns:
            return []
        values = {"table": str(table), "documents": list(documents)}
        return [name for (name,) in connection.execute(NEARLY_EQUAL, values).fetchall()]


def snapshots_with(durable: Path, documents: Collection[MeantDocument], url: str) -> dict[str, str]:
    """All snapshots, mixtures too, that keep one of these documents, by text, name or URL; with their datasets.

    A snapshot whose documents table is gone is among them: what it has is not known. Raises ValueError for a manifest
    that cannot be read.
    """
    found, known, mixed = dict[str, str](), dict[Path, bool](), list[MixtureSnapshot]()
    for name in listing.names_if_there(durable / SNAPSHOTS):
        if name.startswith(".") or not name.endswith(".json"):
            continue
        made = snapshots.read(durable, name.removesuffix(".json"))
        if isinstance(made, MixtureSnapshot):
            mixed.append(made)
            continue
        table = table_of(made, durable)
        if table not in known:
            known[table] = not table.exists() or _keeps(table, documents, url)
        if known[table]:
            found[made.sha256] = made.dataset
    return found | {
        each.sha256: each.dataset for each in mixed if any(source.snapshot in found for source in each.sources)
    }


def was_in(durable: Path, dataset: str, url: str) -> bool:
    """Whether a snapshot that the dataset has pointed at keeps a document of this URL; what is gone is passed over."""
    for past in history.history(durable, dataset):
        if not past.fault:
            table = table_of(snapshots.read(durable, past.sha256), durable)
            if table.exists() and _keeps(table, (), url):
                return True
    return False


def _keeps(table: Path, documents: Collection[MeantDocument], url: str) -> bool:
    with warehouse.connect() as connection:
        columns = [name for name, *_ in connection.execute("DESCRIBE FROM read_parquet(?)", [str(table)]).fetchall()]
        by_url = bool(url) and "url" in columns
        values = {
            "table": str(table),
            "hashes": [each.blake3 for each in documents],
            "documents": [each.name for each in documents],
        } | ({"url": url} if by_url else {})
        query = KEPT.format(or_url="OR url = $url" if by_url else "")
        (count,) = connection.execute(query, values).fetchall()[0]
        return bool(count)
