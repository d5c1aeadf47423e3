"""Takedowns: documents that a dataset must not contain any more, whatever its source says.

Each names a URL, or documents by the hash of their texts as they were read, before rules and masks. So the same text
stays out from any file, and a page stays out whatever it says by then. They are only ever added to, in
`takedowns.journal` beside the dataset; every build reads them all, and none is made without them.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from assets.datasets.building.workshop import workshop
from trainer.base import atomic, digest, journal

REASON = "takedown"
"""Why such a document is left out."""
TAKEN_DOWN = """
    UPDATE live SET removed = '{reason}', because = taken.why FROM taken_down AS taken
    WHERE live.identity = taken.identity OR {of_texts}
"""
OF_TEXTS = "live.whole = taken.identity OR (taken.url <> '' AND live.url = taken.url)"
"""What counts for texts too: a part of a file that was taken down as one document, and the URL."""


@dataclass(frozen=True)
class Takedown:
    """What was asked for once."""

    url: str
    """The URL whose documents are taken down; empty for documents alone."""
    documents: tuple[str, ...]
    """The documents that it meant then: file, `#`, and place in the file."""
    identities: tuple[str, ...]
    """The BLAKE3 of each of their texts, as it was read."""
    why: str
    by: str
    """Who asked for it."""
    time: float
    """When, in seconds since the epoch."""


def read(durable: Path, dataset: str) -> list[Takedown]:
    """All takedowns of a dataset, the earliest first. Raises ValueError when one of them cannot be read."""
    found = journal.read(path(durable, dataset))
    if found.damaged:
        what = f"found {found.damaged} damaged lines, expected none: what they took down is not known"
        cure = "bring them back with slipway restore, or remove these lines and take it down again"
        raise ValueError(f"{path(durable, dataset)}: {what}; {cure}")
    return [
        Takedown(**event | {"documents": tuple(event["documents"]), "identities": tuple(event["identities"])})
        for event in found.events
    ]


def add(durable: Path, takedown: Takedown, dataset: str) -> None:
    """Note a takedown, unless the same was noted before; waits for a build of the dataset."""
    with workshop(durable, dataset):
        known = [(each.url, each.identities) for each in read(durable, dataset)]
        if (takedown.url, takedown.identities) not in known:
            with journal.Journal(path(durable, dataset)) as noted:
                noted.append(dataclasses.asdict(takedown))


def restore(durable: Path, dataset: str, backup: Path) -> int:
    """Note what a backed-up journal has and the dataset's own one lacks; how many takedowns these are.

    Damaged lines of the dataset's journal go once the backup has as many takedowns that it lacks: these are they.
    Otherwise they stay, and every build goes on to be refused. Waits for a build of the dataset. Raises OSError.
    """
    with workshop(durable, dataset) as shop:
        here, place = journal.read(path(durable, dataset)), path(durable, dataset)
        lacking = [event for event in journal.read(backup).events if event not in here.events]
        if here.damaged and len(lacking) >= here.damaged:
            events = sorted([*here.events, *lacking], key=lambda event: event["time"])
            atomic.replace(place, b"".join(map(journal.frame, events)), shop)
        elif lacking:
            with journal.Journal(place) as noted:
                noted.append(*lacking)
    return len(lacking)


def digest_of(takedowns: Iterable[Takedown]) -> str:
    """A hash of what is taken down and why."""
    return digest.of_bytes(atomic.canonical_json([[each.url, each.identities, each.why] for each in takedowns]))


def remove(connection: duckdb.DuckDBPyConnection, takedowns: Iterable[Takedown], of_texts: bool) -> None:
    """Mark the documents that are taken down in the table `live`, whatever else was to become of them."""
    by_text = [("", identity, each.why) for each in takedowns for identity in each.identities]
    rows = by_text + [(each.url, "", each.why) for each in takedowns if each.url]
    if rows:
        columns = zip(("url", "identity", "why"), zip(*rows, strict=True), strict=True)
        connection.register("taken_down", pa.table({name: pa.array(values) for name, values in columns}))
        connection.execute(TAKEN_DOWN.format(reason=REASON, of_texts=OF_TEXTS if of_texts else "false"))
        connection.unregister("taken_down")


def path(durable: Path, dataset: str) -> Path:
    """The journal of a dataset's takedowns."""
    return durable / "datasets" / dataset / "takedowns.journal"
