"""Held out: the document that a small dataset keeps for validation when the share of its recipe would be none.

Of 19 documents 1 % is no document, and no training can be measured. So until a dataset points at a snapshot, the
document of the lowest hash is held out instead. It is noted in `held_out.json` beside the dataset and stays held out
in all later snapshots, because models were compared on it.
"""

from dataclasses import dataclass
from pathlib import Path

import duckdb

from slipway.assets.datasets.building.build import Build
from slipway.trainer.base import atomic, codec, regular_file

LARGEST = 0.1
"""The largest share of the bytes that such a document may have: one of two equal files would be half of the corpus."""
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
    """The BLAKE3 of the document's text as it was read, or of its pixels."""


def mark(build: Build, connection: duckdb.DuckDBPyConnection) -> None:
    """Move the document into the validation split of the table `live`; a new dataset's is chosen now, if it needs one.

    Raises ValueError when the note makes no sense.
    """
    durable, dataset = build.durable, build.recipe.name
    # A model may have read any document of a snapshot that the dataset has ever pointed at.
    if (build.folder / "history.journal").exists():
        noted = read(durable, dataset)
    else:
        noted = _choose(connection, path(durable, dataset), build.scratch)
    if noted is not None:
        connection.execute(MOVE, {"identity": noted.identity})


def read(durable: Path, dataset: str) -> HeldOut | None:
    """The noted document, if there is one. Raises ValueError when the note makes no sense."""
    try:
        return codec.read_if_there(path(durable, dataset), HeldOut)
    except codec.UndecodableRecord as error:
        cure = (
            "remove it, and bring it back with slipway restore; without it its document goes to the split of its hash"
        )
        raise ValueError(f"{error}; {cure}") from None


def restore(durable: Path, dataset: str, backup: Path) -> None:
    """Put a backed-up note in the place of one that is gone. Raises OSError."""
    atomic.create_only(path(durable, dataset), regular_file.read(backup))


def path(durable: Path, dataset: str) -> Path:
    """The file with the note."""
    return durable / "datasets" / dataset / "held_out.json"


def _choose(connection: duckdb.DuckDBPyConnection, note: Path, scratch: Path) -> HeldOut | None:
    """The document of the lowest hash, noted, if the share of the recipe holds out none; else no note is left."""
    [natural] = connection.execute(NATURAL).fetchone() or (0,)
    row = None if natural else connection.execute(CHOSEN).fetchone()
    if row is None:
        note.unlink(missing_ok=True)
        return None
    chosen = HeldOut(row[0])
    atomic.replace(note, codec.encode(chosen), scratch)
    return chosen
