"""Takedowns: documents that a dataset must not contain any more, whatever its source contains.

Each names a URL, an area of the web, or documents by the hash of their texts as they were read, before rules and masks.
So the same text stays out from any file, and a page stays out whatever it says by then. They are only ever added to, in
`takedowns.journal` beside the dataset; every build reads them all, and none is made without them.

An area is a domain, or a part of a site, as SQL that duckdb answers. `https://example.org/blog/` means that page and
all below it, and not `/blogger`; `example.org` means the domain and its subdomains. Scheme, user, port, a slash at the
end, and capitals in the host make no difference: the same as in `cleaning.urls.blocked`.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from slipway.assets.datasets.building.scratch_dir import scratch_dir
from slipway.trainer.base import atomic, digest, journal

REASON = "takedown"
"""The reason that is recorded for such a document."""
TAKEN_DOWN = """
    UPDATE live SET removed = '{reason}', because = taken.why FROM (
        SELECT row, arg_min(why, number) AS why FROM ({matches}) GROUP BY row
    ) taken WHERE live.row = taken.row
"""
"""If a document has several takedowns, the earliest one gives the reason."""
MATCHES = """
    SELECT live.row, taken.number, taken.why
    FROM live JOIN taken_down AS taken ON taken.kind = '{kind}' AND {column} = taken.value
"""
OF_AREAS = """
    SELECT live.row, taken.number, taken.why
    FROM live JOIN ({urls_under}) AS under ON live.url = under.url
    JOIN taken_down AS taken ON taken.kind = 'under' AND taken.value = under.area
"""

URL_PARTS = r"^\s*(?:[a-zA-Z][a-zA-Z0-9+.-]*://)?(?:[^/?#@]*@)?(\[[^/?#\]]*\]?|[^/?#:]*)[^/?#]*([^?#]*)"
"""A URL with its host and its path as groups; Python's `re` and duckdb's RE2 read it alike."""
WITHIN_AREA = """
    (place.host = area.host OR (area.path = '' AND ends_with(place.host, '.' || area.host)))
    AND (area.path = '' OR place.path = area.path OR starts_with(place.path, area.path || '/'))
"""


@dataclass(frozen=True)
class Takedown:
    """One request to take documents down."""

    url: str
    """The URL whose documents are taken down; empty for documents alone."""
    documents: tuple[str, ...]
    """The documents that it matched at that time: file, `#`, and place in the file."""
    identities: tuple[str, ...]
    """The BLAKE3 of each of their texts before cleaning."""
    why: str
    by: str
    """The actor."""
    time: float
    """When, in seconds since the epoch."""
    under: str = ""
    """The area of the web whose documents are taken down; empty for none."""

    def event(self) -> dict[str, Any]:
        """The entry in the journal; without an area it has the form of earlier versions."""
        fields = dataclasses.asdict(self)
        if self.under:
            return fields
        return {name: value for name, value in fields.items() if name != "under"}


def read(durable: Path, dataset: str) -> list[Takedown]:
    """All takedowns of a dataset, the earliest first. Raises ValueError if one of them cannot be read."""
    log = journal.read(path(durable, dataset))
    if log.damaged:
        what = f"found {log.damaged} damaged lines, expected none: what they took down is not known"
        cure = "bring them back with slipway restore, or remove these lines and take it down again"
        raise ValueError(f"{path(durable, dataset)}: {what}; {cure}")
    return [
        Takedown(**event | {"documents": tuple(event["documents"]), "identities": tuple(event["identities"])})
        for event in log.events
    ]


def add(durable: Path, takedowns: Iterable[Takedown], dataset: str) -> None:
    """Record new takedowns in one write, without those on record; waits for a build of the dataset."""
    with scratch_dir(durable, dataset):
        known = {(takedown.url, takedown.under, takedown.identities) for takedown in read(durable, dataset)}
        new = [takedown for takedown in takedowns if (takedown.url, takedown.under, takedown.identities) not in known]
        if new:
            with journal.Journal(path(durable, dataset)) as noted:
                noted.append(*(takedown.event() for takedown in new))


def restore(durable: Path, dataset: str, backup: Path) -> int:
    """Note what a backed-up journal has and the dataset's own one lacks; how many takedowns these are.

    Damaged lines of the dataset's journal go once the backup has as many takedowns that it lacks: these are they.
    Otherwise they stay, and every build goes on to be refused. Waits for a build of the dataset. Raises OSError.
    """
    with scratch_dir(durable, dataset) as scratch:
        current = journal.read(path(durable, dataset))
        target = path(durable, dataset)
        missing = [event for event in journal.read(backup).events if event not in current.events]
        if current.damaged and len(missing) >= current.damaged:
            events = sorted([*current.events, *missing], key=lambda event: event["time"])
            atomic.replace(target, b"".join(map(journal.frame, events)), scratch)
        elif missing:
            with journal.Journal(target) as noted:
                noted.append(*missing)
    return len(missing)


def digest_of(takedowns: Iterable[Takedown]) -> str:
    """A hash of the takedowns and their reasons."""
    fields = (
        [takedown.url, takedown.identities, takedown.why, *([takedown.under] if takedown.under else [])]
        for takedown in takedowns
    )
    return digest.of_bytes(atomic.canonical_json(list(fields)))


def remove(connection: duckdb.DuckDBPyConnection, takedowns: Iterable[Takedown], of_texts: bool) -> None:
    """Mark the documents that are taken down in the table `live`, in place of any other reason.

    `of_texts` says whether they are texts. For texts, URLs match, and so do the parts of a file that was taken down as
    one document.
    """
    rows = [(number, *row) for number, takedown in enumerate(takedowns) for row in _selection_rows(takedown)]
    if not rows:
        return
    columns = zip(("number", "kind", "value", "why"), zip(*rows, strict=True), strict=True)
    connection.register("taken_down", pa.table({name: pa.array(values) for name, values in columns}))
    matches = [MATCHES.format(kind="text", column="live.identity")]
    if of_texts:
        matches += [MATCHES.format(kind="text", column="live.whole"), MATCHES.format(kind="url", column="live.url")]
    under = sorted({value for _, kind, value, _ in rows if kind == "under"}) if of_texts else []
    matches += [OF_AREAS.format(urls_under=urls_under("live"))] if under else []
    query = TAKEN_DOWN.format(reason=REASON, matches=" UNION ALL ".join(matches))
    connection.execute(query, {"under": under} if under else {})
    connection.unregister("taken_down")


def _selection_rows(takedown: Takedown) -> Iterator[tuple[str, str, str]]:
    """The selections of a takedown (a text by its hash, a URL, or an area), each with the reason."""
    yield from (("text", identity, takedown.why) for identity in takedown.identities)
    if takedown.url:
        yield "url", takedown.url, takedown.why
    if takedown.under:
        yield "under", takedown.under, takedown.why


def path(durable: Path, dataset: str) -> Path:
    """The journal of a dataset's takedowns."""
    return durable / "datasets" / dataset / "takedowns.journal"


def require_area(text: str, where: str) -> None:
    """Raise ValueError, with the place `where`, for text that is not an area."""
    match = re.match(URL_PARTS, text)
    host = match[1] if match else ""
    known = "." in host.strip(".") or ("://" in text and host)
    if not known or re.search(r"[?#*\s]", text.strip()):
        expected = "expected a domain or the beginning of URLs up to a slash, without ?, # and *"
        raise ValueError(f"{where}: found {text!r}, {expected}: https://example.org/blog/")


def urls_under(rows: str) -> str:
    """A query for the URLs of `rows`, a table with a column `url`, that are in an area of the list $under: `url` and
    `area`, each pair once."""
    return f"""
        SELECT DISTINCT place.url, area.area
        FROM (SELECT url, {_host("url")} AS host, {_path("url")} AS path FROM {rows} WHERE url <> '') place
        JOIN (SELECT area, {_host("area")} AS host, {_path("area")} AS path FROM (SELECT unnest($under) AS area)) area
        ON {WITHIN_AREA}
    """


def _host(column: str) -> str:
    return f"rtrim(lower(regexp_extract({column}, '{URL_PARTS}', 1)), '.')"


def _path(column: str) -> str:
    return f"rtrim(regexp_extract({column}, '{URL_PARTS}', 2), '/')"
