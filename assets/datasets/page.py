"""The page of a dataset in its folder: `report.html`, with its newest snapshot and the results of the checks.

It has the content of the snapshot's event in Dagster, from the same metadata, in the common layout, and is written
together with it. Everybody with access to the durable tier or the webserver can read it without Dagster.
"""

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets.datasets.inspection import Inspection
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.snapshots.outcomes import Outcome
from slipway.resources import html_layout
from slipway.resources.pages.training import ROOT
from slipway.trainer.base import atomic
from slipway.trainer.base.quantities import counted

PAGE = "report.html"
PICTURE = re.compile(r"!\[([^\]]*)\]\((data:image/png;base64,[A-Za-z0-9+/=]+)\)")
TILES = ("dagster/row_count", "tokens", "shards", "shard_bytes", "bytes_per_token", "images")
EXAMPLES = 3
"""The number of example documents for each reason."""
FILES = 20
"""The number of unread files to show."""
LONGEST = 2000
"""The most characters of a text on the page."""


def address(dataset: str) -> str:
    """The address of a dataset's page on the webserver."""
    return f"{ROOT}/datasets/{dataset}"


def write(
    durable: Path,
    dataset: str,
    description: str,
    metadata: Mapping[str, Any],
    checks: Mapping[str, Outcome],
    inspected: Inspection,
) -> None:
    """Write the page of a dataset's newest snapshot. Raises OSError."""
    past = pointer.past(durable, dataset)
    path = durable / "datasets" / dataset / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.replace(path, html(dataset, description, metadata, checks, past, inspected).encode())


def html(
    dataset: str,
    description: str,
    metadata: Mapping[str, Any],
    checks: Mapping[str, Outcome],
    past: list[str],
    inspected: Inspection,
) -> str:
    """The page; `metadata` is that of the snapshot's event, `past` the dataset's earlier snapshots, and `inspected` the
    decisions on its documents. Pure."""
    return html_layout.page(_title(dataset, metadata), _body(dataset, description, metadata, checks, past, inspected))


def _body(
    dataset: str,
    description: str,
    metadata: Mapping[str, Any],
    checks: Mapping[str, Outcome],
    past: list[str],
    inspected: Inspection,
) -> Iterator[str]:
    values = _values(metadata)
    yield f"<h1>Dataset {escape(dataset)}</h1>"
    yield html_layout.paragraph(description)
    named = {"dagster/row_count": "documents", "shard_bytes": "bytes of shards"}
    counts = [(named.get(name, name.replace("_", " ")), values[name]) for name in TILES if name in values]
    yield html_layout.tiles(
        (name, html_layout.number(value)) for name, value in counts if isinstance(value, int | float)
    )
    yield html_layout.section("checks", "Checks", _checks(checks))
    yield html_layout.section("left-out", "Left out", _left_out(inspected))
    pictures = {name: PICTURE.findall(value) for name, value in values.items() if isinstance(value, str)}
    for name, pictured in pictures.items():
        for alt, source in pictured:
            title = name.replace("_", " ")
            yield html_layout.section(name, title.capitalize(), [f'<img alt="{escape(alt)}" src="{source}">'])
    rest = {name: value for name, value in values.items() if not pictures.get(name) and name not in TILES}
    for name, value in rest.items():
        cells = _cells(value)
        if cells:
            title = name.replace("_", " ").capitalize()
            yield html_layout.section(
                name, title, [html_layout.table(cells[0], [[*map(_grouped, row)] for row in cells[1:]])]
            )
    rows = [[_label(name), _text(value)] for name, value in rest.items() if not _cells(value) and _text(value)]
    yield html_layout.section(
        "all", "Everything else", [html_layout.table(["what", "value"], rows, align_left=True)] if rows else []
    )
    history = [[snapshot, "of now" if snapshot == past[-1] else "earlier"] for snapshot in reversed(past)]
    yield html_layout.section(
        "past", "Snapshots", [html_layout.table(["snapshot", "which"], history, align_left=True)] if past else []
    )


def _checks(checks: Mapping[str, Outcome]) -> Iterator[str]:
    """Each check with its outcome and values; values of groups follow as separate tables."""
    tables = list[str]()
    rows = []
    for name, check in checks.items():
        figures = []
        for figure, entry in check.metadata.items():
            value = entry.value if isinstance(entry, dg.MetadataValue) else entry
            cells = _cells(value)
            if cells:
                tables += [
                    f"<h3>{escape(name.replace('_', ' ').capitalize())}</h3>",
                    html_layout.table(cells[0], cells[1:]),
                ]
            else:
                figures.append(f"{figure.replace('_', ' ')}: {_text(value)}")
        rows.append([_label(name), "passed" if check.passed else "not passed", ", ".join(figures)])
    if rows:
        yield html_layout.table(["check", "outcome", "figures"], rows, align_left=True)
    yield from tables


def _left_out(inspected: Inspection) -> Iterator[str]:
    """The documents that each rule left out, with examples and evidence, and the files that were not read."""
    if inspected.removals:
        yield from _removed(inspected)
    unread = inspected.files_left_out
    if unread:
        yield f"<h3>{counted(len(unread), 'file was', 'files were')} not read</h3>"
        yield html_layout.table(
            ["reason", "file"], [[file.reason, file.name] for file in unread[:FILES]], align_left=True
        )
        more = len(unread) - FILES
        yield html_layout.paragraph(
            f"{more:,} more are in slipway data inspect {inspected.dataset}." if more > 0 else "", "quiet"
        )


def _removed(inspected: Inspection) -> Iterator[str]:
    rows = [
        [_label(removal.reason), f"{removal.documents:,}", f"{removal.documents / inspected.rows:.1%}"]
        for removal in inspected.removals
    ]
    yield html_layout.table(["reason", "documents", "share"], rows)
    example_rows = [
        [_label(removal.reason), example.document, _text(example.because), example.begins]
        for removal in inspected.removals
        for example in removal.examples
    ]
    yield html_layout.table(["reason", "document", "because of", "begins"], example_rows, align_left=True, stacks=True)


def _values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, dg.MetadataValue) else value for name, value in metadata.items()}


def _title(dataset: str, metadata: Mapping[str, Any]) -> str:
    """The page's title, such as: 575 documents, 3,033,339 tokens: dataset python-stdlib."""
    values = _values(metadata)
    counts = {"documents": values.get("dagster/row_count"), "tokens": values.get("tokens")}
    sizes = ", ".join(f"{html_layout.number(value)} {name}" for name, value in counts.items() if isinstance(value, int))
    if sizes:
        return f"{sizes}: dataset {dataset}"
    return f"Dataset {dataset}"


NAMES = {"unigram_entropy": "unigram entropy, nats per token", "reused": "taken from an earlier build"}


def _label(name: str) -> str:
    """A name of the metadata in readable form."""
    return NAMES.get(name, name.removeprefix("dagster/").replace("_", " "))


def _cells(value: Any) -> list[list[str]]:
    """The cells of a Markdown table, its head first; empty for any other text."""
    lines = value.splitlines() if isinstance(value, str) else []
    if len(lines) < 3 or not all(line.startswith("|") and line.endswith("|") for line in lines):
        return []
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    return [cells[0], *(row[: len(cells[0])] for row in cells[2:])]


def _grouped(cell: str) -> str:
    """A whole number with separators of thousands; any other text unchanged."""
    if cell.isdecimal() and len(cell) > 4:
        return f"{int(cell):,}"
    return cell


def _text(value: Any) -> str:
    """A value as the text of a cell; empty for a kind that only Dagster can show."""
    if value in ({}, []):
        text = "none"
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, str):
        text = value
    elif isinstance(value, int | float):
        text = html_layout.number(value)
    elif isinstance(value, Mapping) and all(isinstance(number, int | float) for number in value.values()):
        text = ", ".join(f"{_label(str(name))} {html_layout.number(number)}" for name, number in value.items())
    elif isinstance(value, Mapping | list):
        text = json.dumps(value, ensure_ascii=False, default=str)
    else:
        return ""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
