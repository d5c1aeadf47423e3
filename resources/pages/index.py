"""The index page: the newest trainings with their status, and the sweeps and datasets of a durable tier."""

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
"""The maximum number of listed trainings; those with the newest records are listed."""
REPORT_PAGE = "report.html"
"""The file name of a sweep's or a dataset's page in its folder."""
HEAD = 4096
"""The number of characters at the beginning of a page that contain its title."""
NAV = (("Dagster", "/"), ("Daily report", "/slipway/morning"), ("Costs", "/slipway/costs"))
EMPTY = {
    "trainings": "To start one and follow it: slipway run RECIPE --watch. To list the recipes: slipway recipes check. "
    "In Dagster, the job RECIPE_start starts one. The recipe's dataset must have been built before.",
    "sweeps": "To start one, materialise the asset RECIPE/sweep in Dagster. slipway demo starts all of them.",
    "datasets": "To build one: slipway data build DATASET; or materialise the asset DATASET/snapshot in Dagster.",
}
"""What to do if a section has no entry yet."""


def html(reader: TrainingReader) -> str:
    """The page. Raises OSError."""
    stores = sorted(Trainings(reader.durable / "trainings").stores(), key=_changed, reverse=True)
    rows = [_row(reader, store) for store in stores[:MOST]]
    live = any(is_live for is_live, _ in rows)
    return html_layout.page("Slipway", _body(reader.durable, [row for _, row in rows], len(stores)), live=live, nav=NAV)


def _body(durable: Path, trainings: list[tuple[str, ...]], all: int) -> Iterator[str]:
    yield "<h1>Slipway</h1>"
    yield html_layout.section("trainings", "Trainings", _section("trainings", ("training", "status"), trainings))
    if all > MOST:
        yield html_layout.paragraph(f"{all - MOST:,} older trainings are not listed here: slipway ls", "quiet")
    for what in ("sweeps", "datasets"):
        rows = list(_report_links(durable, what))
        yield html_layout.section(what, what.capitalize(), _section(what, (what[:-1], "content"), rows))


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
        return False, (_named(store.id, where, store.id), f"unreadable: {error}")


def _named(name: str, where: str, id: str) -> html_layout.Markup:
    return html_layout.Markup(f"{html_layout.link(name, where)}<br><code>{escape(id)}</code>")


def _status_text(status: TrainingStatus) -> str:
    return status.summary[:1].upper() + status.summary[1:]


def _report_links(durable: Path, what: str) -> Iterator[tuple[str, ...]]:
    """Each sweep or dataset that has a page, with the title of that page."""
    for name in sorted(listing.names_if_there(durable / what)):
        page = durable / what / name / REPORT_PAGE
        if page.is_file():
            yield html_layout.link(name, f"/slipway/{what}/{name}"), _title(page).removesuffix(f": {what[:-1]} {name}")


def _title(page: Path) -> str:
    """The title of a page, or ""."""
    with page.open(encoding="utf-8", errors="replace") as file:
        match = re.search("<title>(.*?)</title>", file.read(HEAD), re.DOTALL)
    return unescape(match[1]) if match else ""


def _changed(store: TrainingStore) -> float:
    """The time of a training's newest record; 0 if it cannot be read."""
    times = [0.0]
    for name in ("desired", "claims", "exits", ""):
        try:
            times.append((store.folder / name).stat().st_mtime)
        except OSError:
            continue
    return max(times)
