"""Held out: the validation document of a small dataset, if the recipe's share would give none.

1 % of 19 documents is no document, and then no training could be measured. So for a dataset's first snapshot, the
document with the lowest hash is held out instead. It is recorded in `held_out.json` beside the dataset and stays held
out in all later snapshots, because models were compared on it.
"""

from dataclasses import dataclass
from pathlib import Path

import duckdb

from slipway.assets.datasets.building.build import Build
from slipway.trainer.base import atomic, codec, regular_file

LARGEST = 0.1
"""The largest share of bytes of such a document, because in a corpus of two files one would be half of the corpus."""
NATURAL = "SELECT count(*) FROM live WHERE removed IS NULL AND split = 'validation'"
CHOSEN = f"""
    SELECT identity FROM live WHERE removed IS NULL GROUP BY identity
    HAVING sum(bytes) <= {LARGEST} * (SELECT sum(bytes) FROM live WHERE removed IS NULL) ORDER BY identity LIMIT 1
"""
MOVE = "UPDATE live SET split = 'validation' WHERE identity = $identity"


@dataclass(frozen=True)
class HeldOut:
    """``held_out.json`` of a dataset."""

    identity: str
    """The BLAKE3 of the document's text before cleaning, or of its pixels."""


def mark(build: Build, connection: duckdb.DuckDBPyConnection) -> None:
    """Move the document to the validation split of the table `live`; a new dataset chooses it now, if it needs one.

    Raises ValueError if the record is invalid.
    """
    durable = build.durable
    dataset = build.recipe.name
    # A model may have seen any document of a snapshot that the dataset has ever pointed at.
    if (build.folder / "history.journal").exists():
        noted = read(durable, dataset)
    else:
        noted = _choose(connection, path(durable, dataset), build.scratch)
    if noted is not None:
        connection.execute(MOVE, {"identity": noted.identity})


def read(durable: Path, dataset: str) -> HeldOut | None:
    """The recorded document, if there is one. Raises ValueError if the record is invalid."""
    try:
        return codec.read_if_there(path(durable, dataset), HeldOut)
    except codec.UndecodableRecord as error:
        cure = (
            "remove it, and bring it back with slipway restore; without it its document goes to the split of its hash"
        )
        raise ValueError(f"{error}; {cure}") from None


def restore(durable: Path, dataset: str, backup: Path) -> None:
    """Restore a missing record from a backup. Raises OSError."""
    atomic.create_only(path(durable, dataset), regular_file.read(backup))


def path(durable: Path, dataset: str) -> Path:
    """The path of the record."""
    return durable / "datasets" / dataset / "held_out.json"


def _choose(connection: duckdb.DuckDBPyConnection, note: Path, scratch: Path) -> HeldOut | None:
    """Choose and record the document with the lowest hash if the recipe's share holds out none; else remove the
    record."""
    [natural] = connection.execute(NATURAL).fetchone() or (0,)
    row = None if natural else connection.execute(CHOSEN).fetchone()
    if row is None:
        note.unlink(missing_ok=True)
        return None
    chosen = HeldOut(row[0])
    atomic.replace(note, codec.encode(chosen), scratch)
    return chosen
