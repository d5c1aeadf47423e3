"""The index of pages: the newest trainings and where each stands, the sweeps and the datasets of a durable tier."""

import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path

from slipway.resources import html_layout
from slipway.resources.pages.reading import TrainingReader
from slipway.resources.trainings import naming
from slipway.resources.trainings.status import TrainingStatus
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.base import listing

MOST = 100
"""Trainings that are listed: those in whose records something was written last."""
REPORT_PAGE = "report.html"
"""The page of a sweep or a dataset in its folder."""
HEAD = 4096
"""The first characters of a page, in which its title is."""
NAV = (("Dagster", "/"), ("The morning after", "/slipway/morning"), ("Costs", "/slipway/costs"))
EMPTY = {
    "trainings": "slipway run RECIPE --watch starts one and follows it; slipway recipes check names the recipes. In "
    "Dagster, the job RECIPE_start does the same. The recipe's dataset must have been built.",
    "sweeps": "In Dagster, materialise the asset RECIPE/sweep; slipway demo makes those of all recipes.",
    "datasets": "slipway data build DATASET builds one; in Dagster, materialise the asset DATASET/snapshot.",
}
"""What a person does where a section has no entry yet."""


def html(reader: TrainingReader) -> str:
    """The page. Raises OSError."""
    stores = sorted(Trainings(reader.durable / "trainings").stores(), key=_changed, reverse=True)
    rows = [_row(reader, store) for store in stores[:MOST]]
    live = any(is_live for is_live, _ in rows)
    return html_layout.page("Slipway", _body(reader.durable, [row for _, row in rows], len(stores)), live=live, nav=NAV)


def _body(durable: Path, trainings: list[tuple[str, ...]], all: int) -> Iterator[str]:
    yield "<h1>Slipway</h1>"
    yield html_layout.section(
        "trainings", "Trainings", _section("trainings", ("training", "where it stands"), trainings)
    )
    if all > MOST:
        yield html_layout.paragraph(f"{all - MOST:,} older ones are not listed; slipway ls has them all.", "quiet")
    for what in ("sweeps", "datasets"):
        rows = list(_report_links(durable, what))
        yield html_layout.section(what, what.capitalize(), _section(what, (what[:-1], "what it has"), rows))


def _section(what: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield html_layout.table(head, rows, align_left=True)
    else:
        yield html_layout.paragraph(f"No {what[:-1]} yet. {EMPTY[what]}", "quiet")


def _row(reader: TrainingReader, store: TrainingStore) -> tuple[bool, tuple[str, ...]]:
    """Whether the training may change by itself, and its cells."""
    where = f"/slipway/trainings/{store.id}"
    try:
        facts = store.read()
        status = reader.status(facts)
        return status.is_live, (_named(naming.of(facts), where, store.id), _status_text(status))
    except (OSError, ValueError) as error:
        return False, (_named(store.id, where, store.id), f"not readable: {error}")


def _named(name: str, where: str, id: str) -> html_layout.Markup:
    return html_layout.Markup(f"{html_layout.link(name, where)}<br><code>{escape(id)}</code>")


def _status_text(status: TrainingStatus) -> str:
    return status.summary[:1].upper() + status.summary[1:]


def _report_links(durable: Path, what: str) -> Iterator[tuple[str, ...]]:
    """Each sweep or dataset that has a page, with that page's own title."""
    for name in sorted(listing.names_if_there(durable / what)):
        page = durable / what / name / REPORT_PAGE
        if page.is_file():
            yield html_layout.link(name, f"/slipway/{what}/{name}"), _title(page).removesuffix(f": {what[:-1]} {name}")


def _title(page: Path) -> str:
    """The title of a page, empty where it has none."""
    with page.open(encoding="utf-8", errors="replace") as file:
        match = re.search("<title>(.*?)</title>", file.read(HEAD), re.DOTALL)
    return unescape(match[1]) if match else ""


def _changed(store: TrainingStore) -> float:
    """When one of its records was made last; 0 where that cannot be read."""
    times = [0.0]
    for name in ("desired", "claims", "exits", ""):
        try:
            times.append((store.folder / name).stat().st_mtime)
        except OSError:
            continue
    return max(times)
