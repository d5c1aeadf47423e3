"""Unread files: those that a recipe selects and that the last listing of its source left out, each with the reason.

A snapshot's provenance has how many there were; the names are kept beside the dataset, in `left_out.jsonl`, a line a
file, replaced by each listing.
"""

import filecmp
import json
from pathlib import Path
from typing import NamedTuple

from slipway.assets.datasets.building.workshop import writing
from slipway.assets.datasets.reading.sources import SourceListing
from slipway.trainer.base import atomic, parsing, regular_file

SHOWN = 20
"""Files that the UI shows; `slipway data inspect` shows all."""


class LeftOutFile(NamedTuple):
    """The name of a file in its source, and why it is not read."""

    name: str
    reason: str


def note(durable: Path, dataset: str, listing: SourceListing, shop: Path) -> None:
    """Write down which files a listing left out. `shop` is the dataset's workshop."""
    path, made = _path(durable, dataset), shop / "left_out.jsonl"
    with writing(made), made.open("w", encoding="utf-8") as file:
        for name, reason in listing.unread:
            file.write(json.dumps({"name": name, "reason": reason}, ensure_ascii=False) + "\n")
    if not path.exists() or not filecmp.cmp(path, made, shallow=False):
        atomic.move(made, path)


def files(durable: Path, dataset: str) -> list[LeftOutFile]:
    """The files that the last listing left out; none for a dataset that was built before they were written down.

    Raises ValueError for a list that is damaged; the next build writes it anew.
    """
    path = _path(durable, dataset)
    try:
        return [LeftOutFile(**parsing.value(line)) for line in regular_file.read(path).splitlines()]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError):
        raise ValueError(f"{path}: damaged: expected a JSON object in each line; build the dataset again") from None


def table(durable: Path, dataset: str) -> str:
    """The first of these files as a table in Markdown."""
    found = files(durable, dataset)
    rows = [
        "| file | why it is not read |",
        "|---|---|",
        *(f"| {_in_a_cell(each.name)} | {each.reason} |" for each in found[:SHOWN]),
    ]
    return "\n".join(rows + ([f"| and {len(found) - SHOWN} more | |"] if len(found) > SHOWN else []))


def _in_a_cell(name: str) -> str:
    return " ".join(name.split()).replace("|", "\\|")


def _path(durable: Path, dataset: str) -> Path:
    return durable / "datasets" / dataset / "left_out.jsonl"
