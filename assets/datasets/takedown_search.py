"""Takedown search: the documents that a takedown selects, their near-duplicates, and the snapshots that contain
them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from slipway.assets.datasets.building.build import DocumentKind
from slipway.assets.datasets.documents import extracts, takedowns
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.snapshots.outcomes import table_of
from slipway.resources import warehouse
from slipway.trainer.base import listing
from slipway.trainer.base.paths import SNAPSHOTS
from slipway.trainer.data import snapshots
from slipway.trainer.data.mixtures import MixtureSnapshot

MATCHING_DOCUMENTS = """
    WITH read AS (
        SELECT d.file || '#' || d.number AS document, d.file, d.number, {identity} AS identity, d.blake3, {url} AS url
        FROM read_parquet($segments, filename = 'segment_file', union_by_name = true) d
        JOIN read_parquet($index) e ON e.name = d.file AND e.segment = parse_filename(d.segment_file, true)
        WHERE d.blake3 IS NOT NULL
    ),
    under AS (SELECT url, list(area ORDER BY area) AS areas FROM ({urls_under}) GROUP BY url)
    SELECT document, identity, blake3, coalesce(read.url, ''), coalesce(areas, [])
    FROM read LEFT JOIN under ON read.url = under.url
    WHERE read.url IN $urls OR areas IS NOT NULL OR file IN $documents OR document IN $documents
    ORDER BY file, number
"""
NEARLY_EQUAL = """
    WITH documents AS (SELECT name || '#' || number AS document, because FROM read_parquet($table)
                       WHERE removed IS NULL OR removed LIKE '%duplicate%'),
    clusters AS (SELECT unnest($documents) UNION
                 SELECT because FROM documents WHERE document IN $documents AND because IS NOT NULL)
    SELECT document FROM documents
    WHERE (document IN (FROM clusters) OR because IN (FROM clusters)) AND document NOT IN $documents ORDER BY document
"""
REMAINING = """
    SELECT count(*) FROM read_parquet($table)
    WHERE removed IS NULL AND (blake3 IN $hashes OR name || '#' || number IN $documents)
"""
KEPT_URLS = """
    SELECT DISTINCT url FROM {kept} WHERE url IN $urls UNION ALL SELECT DISTINCT area FROM ({urls_under})
"""
_KEPT_ROWS = "(FROM read_parquet($table) WHERE removed IS NULL)"


@dataclass(frozen=True)
class TakedownSelection:
    """A person's selection of documents to take down."""

    urls: tuple[str, ...] = ()
    """All documents of these URLs."""
    under: tuple[str, ...] = ()
    """All documents whose URLs are in these areas of the web (`slipway.assets.datasets.documents.takedowns`)."""
    documents: tuple[str, ...] = ()
    """Files, or documents of them as `file#number`."""


@dataclass(frozen=True)
class MatchingDocument:
    """A document of the source at the last reading."""

    name: str
    """File, `#`, and place in the file."""
    identity: str
    """BLAKE3 of its text before cleaning."""
    blake3: str
    """BLAKE3 of its cleaned text."""
    url: str = ""
    """Its URL; empty if it is unknown."""
    areas: tuple[str, ...] = ()
    """The selected areas that contain its URL."""


def matching_documents(
    durable: Path, dataset: str, kind: DocumentKind, selection: TakedownSelection
) -> list[MatchingDocument]:
    """The selected documents, by the last reading of the source.

    Raises ValueError when the dataset was never read, before documents had URLs, or when what was read is gone.
    """
    index = extracts.newest(durable, dataset)
    if not index.exists():
        raise ValueError(f"dataset {dataset}: found no documents; to read them: slipway data build {dataset}")
    paths = [str(path) for path in extracts.segments(index, durable)]
    gone = [path for path in paths if not Path(path).exists()]
    if gone:
        raise ValueError(
            f"dataset {dataset}: found no file at {gone[0]}, expected texts as they were read last; to read them "
            f"again, first: slipway data build {dataset}"
        )
    url = "d.url" if "url" in kind.table.names else "NULL::VARCHAR"
    query = MATCHING_DOCUMENTS.format(identity=kind.identity, url=url, urls_under=takedowns.urls_under("read"))
    values: dict[str, Any] = {"segments": paths, "index": str(index), "documents": list(selection.documents)}
    values |= {"urls": list(selection.urls), "under": list(selection.under)}
    with warehouse.connect() as connection:
        try:
            rows = connection.execute(query, values).fetchall()
        except duckdb.BinderException:
            raise ValueError(
                f"dataset {dataset}: it was read by a version that kept no URLs; first: slipway data build {dataset}"
            ) from None
    return [
        MatchingDocument(name, identity, blake3, where, tuple(within)) for name, identity, blake3, where, within in rows
    ]


def nearly_equal(durable: Path, snapshot: str, documents: Collection[str]) -> list[str]:
    """The other documents in the same clusters of duplicates, by a snapshot's table."""
    table = table_of(snapshots.read(durable, snapshot), durable)
    with warehouse.connect() as connection:
        columns = [name for name, *_ in connection.execute("DESCRIBE FROM read_parquet(?)", [str(table)]).fetchall()]
        if "because" not in columns:
            return []
        values = {"table": str(table), "documents": list(documents)}
        return [name for (name,) in connection.execute(NEARLY_EQUAL, values).fetchall()]


def snapshots_with(
    durable: Path, documents: Collection[MatchingDocument], selection: TakedownSelection
) -> dict[str, str]:
    """All snapshots, mixtures too, that keep one of these documents, by text, name or URL; with their datasets.

    A snapshot whose documents table is gone is included, because its content is unknown. Raises ValueError for an
    unreadable manifest.
    """
    datasets = dict[str, str]()
    known = dict[Path, bool]()
    mixed = list[MixtureSnapshot]()
    for name in listing.names_if_there(durable / SNAPSHOTS):
        if name.startswith(".") or not name.endswith(".json"):
            continue
        snapshot = snapshots.read(durable, name.removesuffix(".json"))
        if isinstance(snapshot, MixtureSnapshot):
            mixed.append(snapshot)
            continue
        table = table_of(snapshot, durable)
        if table not in known:
            known[table] = not table.exists() or _keeps(table, documents) or bool(_kept_urls(table, selection))
        if known[table]:
            datasets[snapshot.sha256] = snapshot.dataset
    return datasets | {
        mixture.sha256: mixture.dataset
        for mixture in mixed
        if any(source.snapshot in datasets for source in mixture.sources)
    }


def were_in(durable: Path, dataset: str, selection: TakedownSelection) -> set[str]:
    """The URLs and areas with a document in any snapshot of the dataset's history; missing snapshots are ignored."""
    names = set[str]()
    for past in pointer.history(durable, dataset):
        if not past.fault:
            table = table_of(snapshots.read(durable, past.sha256), durable)
            if table.exists():
                names |= _kept_urls(table, selection)
    return names


def _keeps(table: Path, documents: Collection[MatchingDocument]) -> bool:
    """Whether a table keeps one of these documents, by text or name."""
    values = {
        "hashes": [document.blake3 for document in documents],
        "documents": [document.name for document in documents],
    }
    with warehouse.connect() as connection:
        (count,) = connection.execute(REMAINING, values | {"table": str(table)}).fetchall()[0]
        return bool(count)


def _kept_urls(table: Path, selection: TakedownSelection) -> set[str]:
    """The URLs and areas with a kept document in a table."""
    if not selection.urls and not selection.under:
        return set()
    with warehouse.connect() as connection:
        columns = [name for name, *_ in connection.execute("DESCRIBE FROM read_parquet(?)", [str(table)]).fetchall()]
        if "url" not in columns:
            return set()
        query = KEPT_URLS.format(kept=_KEPT_ROWS, urls_under=takedowns.urls_under(_KEPT_ROWS))
        values = {"table": str(table), "urls": list(selection.urls), "under": list(selection.under)}
        return {url for (url,) in connection.execute(query, values).fetchall()}
