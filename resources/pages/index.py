"""The index of pages: the newest trainings, the sweeps and the datasets of a durable tier."""

from collections.abc import Iterator
from html import escape
from pathlib import Path

from resources.pages import frame
from resources.trainings import naming
from resources.trainings.store import Trainings, TrainingStore
from trainer.base import listing

MOST = 100
"""Trainings that are listed: those in whose records something was written last."""


def html(durable: Path) -> str:
    """The page. Raises OSError."""
    return frame.page("Slipway", _body(durable), nav=[("Dagster", "/"), ("The morning after", "/slipway/morning")])


def _body(durable: Path) -> Iterator[str]:
    yield "<h1>Slipway</h1>"
    stores = sorted(Trainings(durable / "trainings").stores(), key=_changed, reverse=True)
    yield frame.section("trainings", "Trainings", _trainings(stores))
    for what in ("sweeps", "datasets"):
        names = [
            name for name in listing.names_if_there(durable / what) if (durable / what / name / "report.html").is_file()
        ]
        items = [f"<li>{frame.link(name, f'/slipway/{what}/{name}')}</li>" for name in sorted(names)]
        yield frame.section(what, what.capitalize(), [f"<ul>{''.join(items)}</ul>"] if items else [])


def _trainings(stores: list[TrainingStore]) -> Iterator[str]:
    if not stores:
        yield frame.paragraph("None yet.", "quiet")
        return
    rows = "".join(f"<li>{_line(store)}</li>" for store in stores[:MOST])
    yield f"<ul>{rows}</ul>"
    if len(stores) > MOST:
        yield frame.paragraph(f"{len(stores) - MOST:,} older ones are not listed; slipway ls has them all.", "quiet")


def _line(store: TrainingStore) -> str:
    where = f"/slipway/trainings/{store.id}"
    try:
        facts = store.read()
        name = naming.of(facts)
    except (OSError, ValueError) as error:
        return f"{frame.link(store.id, where)}: {escape(str(error))}"
    ended = facts.ended
    state = "runs" if facts.running else ended.outcome if ended else "is wanted" if facts.wanted else "not started"
    return f"{frame.link(name, where)} <code>{escape(store.id)}</code> {escape(state)}"


def _changed(store: TrainingStore) -> float:
    """When one of its records was made last; 0 where that cannot be read."""
    times = [0.0]
    for name in ("desired", "claims", "exits", ""):
        try:
            times.append((store.folder / name).stat().st_mtime)
        except OSError:
            continue
    return max(times)
