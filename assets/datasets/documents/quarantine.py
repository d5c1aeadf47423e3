"""Quarantine: unreadable documents and files, and the error if a build has too many of them.

An unreadable part counts as one document, whatever was lost with it, so files that broke off are counted as well.
Files that a recipe selects and that the last listing of its source left out are not even opened: a snapshot's
provenance has how many there were; the names, each with the reason, are kept beside the dataset, in `left_out.jsonl`, a
line a file, replaced by each listing.
"""

import filecmp
import json
from pathlib import Path
from typing import NamedTuple

import duckdb

from slipway.assets.datasets.building.build import Build
from slipway.assets.datasets.building.scratch_dir import writing
from slipway.assets.datasets.reading.document import LOSES_THE_REST, REMEDIES
from slipway.assets.datasets.reading.sources import SourceListing
from slipway.trainer.base import atomic, parsing, regular_file

DOCUMENTS = "SELECT count(*) FILTER (removed LIKE 'unreadable: %'), count(*) FROM live"
FILES = "SELECT count(DISTINCT name) FILTER (list_contains($lost, removed)), count(DISTINCT name) FROM live"
REASONS = """
    SELECT substr(removed, 13) AS reason, count(*) AS count, arg_min(name, row) FROM live
    WHERE removed LIKE 'unreadable: %' GROUP BY reason ORDER BY count DESC, reason LIMIT 5
"""
ALL = "SELECT name, number, substr(removed, 13) FROM live WHERE removed LIKE 'unreadable: %' ORDER BY row"
LISTED = 100_000
"""The most documents that are recorded."""

MAX_ROWS = 20
"""The most left-out files that the UI shows; `slipway data inspect` shows all."""


def refuse(build: Build, connection: duckdb.DuckDBPyConnection) -> None:
    """Raise ValueError when more than the share `reading.quarantine` of the documents of `live` is unreadable, or of
    the files broke off.

    It has the reasons and some names; the first LISTED of all are in `unreadable.jsonl` of the dataset's folder,
    until a build is not refused.
    """
    recipe = build.recipe
    path = build.folder / "unreadable.jsonl"
    limit = recipe.reading.quarantine
    unreadable, rows = connection.execute(DOCUMENTS).fetchall()[0]
    broken = [f"unreadable: {reason}" for reason in sorted(LOSES_THE_REST)]
    lost, files = connection.execute(FILES, {"lost": broken}).fetchall()[0] if unreadable else (0, 0)
    if unreadable <= limit * rows and lost <= limit * files:
        path.unlink(missing_ok=True)
        return
    if unreadable > limit * rows:
        problem = f"{unreadable} of {rows} documents cannot be read, {unreadable / rows:.1%}"
    else:
        problem = f"{lost} of {files} files break off, and the rest of them is lost, {lost / files:.1%}"
    every = connection.execute(ALL).fetchmany(LISTED)
    lines = (json.dumps(dict(zip(("name", "number", "reason"), row, strict=True))) + "\n" for row in every)
    atomic.replace(path, "".join(lines).encode(), build.scratch)
    raise ValueError(
        f"dataset {recipe.name}: {problem}, expected at most {limit:.1%} (reading.quarantine): {_named(connection)}; "
        f"all of them: {path}"
    )


def _named(connection: duckdb.DuckDBPyConnection) -> str:
    """The most frequent reasons, with a name each and what to do."""
    return "; ".join(
        f"{reason} ({count}, such as {name}{': ' + REMEDIES[reason] if reason in REMEDIES else ''})"
        for reason, count, name in connection.execute(REASONS).fetchall()
    )


class LeftOutFile(NamedTuple):
    """A file of the source that is not read, and the reason."""

    name: str
    reason: str


def note_left_out(build: Build, listing: SourceListing) -> None:
    """Record the files that a listing left out."""
    path = _left_out_path(build.durable, build.recipe.name)
    temporary = build.scratch / "left_out.jsonl"
    with writing(temporary), temporary.open("w", encoding="utf-8") as file:
        for name, reason in listing.unread:
            file.write(json.dumps({"name": name, "reason": reason}, ensure_ascii=False) + "\n")
    if not path.exists() or not filecmp.cmp(path, temporary, shallow=False):
        atomic.move(temporary, path)


def left_out_files(durable: Path, dataset: str) -> list[LeftOutFile]:
    """The files that the last listing left out; empty for a dataset from before they were recorded.

    Raises ValueError for a damaged list, which the next build replaces.
    """
    path = _left_out_path(durable, dataset)
    try:
        return [LeftOutFile(**parsing.value(line)) for line in regular_file.read(path).splitlines()]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError):
        raise ValueError(f"{path}: damaged: expected a JSON object in each line; build the dataset again") from None


def left_out_table(durable: Path, dataset: str) -> str:
    """The first of these files as a table in Markdown."""
    files = left_out_files(durable, dataset)
    rows = [
        "| file | why it is not read |",
        "|---|---|",
        *(f"| {_in_a_cell(file.name)} | {file.reason} |" for file in files[:MAX_ROWS]),
    ]
    return "\n".join(rows + ([f"| and {len(files) - MAX_ROWS} more | |"] if len(files) > MAX_ROWS else []))


def _in_a_cell(name: str) -> str:
    return " ".join(name.split()).replace("|", "\\|")


def _left_out_path(durable: Path, dataset: str) -> Path:
    return durable / "datasets" / dataset / "left_out.jsonl"
