"""The report of a night as one HTML page: no scripts, nothing from elsewhere, light and dark, also on a phone.

Red is used for what waits for a person, and for nothing else; beside the colour stands the word.
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from urllib.parse import urljoin

from slipway.resources import html_layout
from slipway.resources.daily_report.report import MorningItem, MorningReport
from slipway.resources.daily_report.text import sections
from slipway.resources.trainings import incident_reports
from slipway.trainer.base import atomic
from slipway.trainer.base.quantities import counted

REFRESH_SECONDS = 300
NAV = (("All pages", "/slipway"), ("Dagster", "/"))


def html(report: MorningReport, address: str = "") -> str:
    """The page; `address` is the webserver's, without which nothing is linked."""
    nav = [(name, urljoin(address, path)) for name, path in NAV] if address else []
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
    return html_layout.page(_title(report), _body(report, address), head=refresh, nav=nav)


def write(report: MorningReport, path: Path, address: str = "") -> None:
    """Put the page at a path, in place of what was there. Raises OSError."""
    atomic.replace(path, html(report, address).encode())


def _title(report: MorningReport) -> str:
    waits = len(report.waiting)
    return f"{counted(waits, 'thing waits', 'things wait')} for a person" if waits else "Nobody is needed"


def _body(report: MorningReport, address: str) -> Iterator[str]:
    yield "<h1>The morning after</h1>"
    yield f'<p class="quiet">{incident_reports.when(report.since)} to {incident_reports.when(report.until)}</p>'
    yield html_layout.paragraph(f"{report.sentence[:1].upper()}{report.sentence[1:]}.")
    if not report.items:
        yield html_layout.paragraph("Nothing happened that needed the platform or a person.", "quiet")
    yield '<ul class="tiles">'
    for name, value, is_red in _tiles(report):
        yield f"<li{_red(is_red)}><b>{escape(value)}</b>{escape(name)}</li>"
    yield "</ul>"
    for number, (title, items) in enumerate(sections(report)):
        yield f'<section aria-labelledby="part-{number}"><h2 id="part-{number}">{escape(title)}</h2>'
        for each in items:
            yield from _article(each, address)
        yield "</section>"
    for title, ids in {"Finished": report.succeeded, "Stopped by a person": report.stopped}.items():
        if ids:
            pages = [
                html_layout.link(each, urljoin(address, f"/slipway/trainings/{each}") if address else "")
                for each in ids
            ]
            yield f"<h2>{title}</h2><p>{', '.join(pages)}</p>"


def _tiles(report: MorningReport) -> Iterator[tuple[str, str, bool]]:
    yield "waiting for a person", str(len(report.waiting)), bool(report.waiting)
    yield "incidents", str(report.incidents), False
    yield "seconds lost", f"{report.seconds_lost:,.0f}", False
    yield "steps lost", f"{report.steps_lost:,}", False
    yield "finished", str(len(report.succeeded)), False


def _article(each: MorningItem, address: str) -> Iterator[str]:
    link = urljoin(address, each.path) if each.path and address else ""
    name = html_layout.link(each.subject, link)
    cause, what = escape(each.cause.replace("_", " ")), escape(each.what)
    yield f"<article{_red(each.needs_person)}><h3>{name}: {cause}</h3><p>{what}</p><dl>"
    fields = {
        "to do": each.todo,
        "when": incident_reports.when(each.at) if each.at else "",
        "where": each.where,
        "cost": each.cost,
        "done": each.done,
    }
    for title, value in fields.items():
        if value:
            yield f"<dt>{title}</dt><dd>{html_layout.worded(value)}</dd>"
    if each.command:
        yield f"<dt>evidence</dt><dd><code>{escape(each.command)}</code></dd>"
    yield "</dl></article>"


def _red(is_red: bool) -> str:
    return ' class="red"' if is_red else ""
