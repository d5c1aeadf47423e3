"""The daily report as one HTML page, without scripts and without files from other servers.

Red marks only what waits for a person, and the text says so too.
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from urllib.parse import urljoin

from slipway.resources import html_layout
from slipway.resources.daily_report.report import DailyReport, ReportItem
from slipway.resources.daily_report.text import sections
from slipway.resources.trainings import incident_reports
from slipway.trainer.base import atomic
from slipway.trainer.base.quantities import counted

REFRESH_SECONDS = 300
NAV = (("All pages", "/slipway"), ("Dagster", "/"))


def html(report: DailyReport, address: str = "") -> str:
    """The page; `address` is the webserver's address, and without it the page has no links."""
    nav = [(name, urljoin(address, path)) for name, path in NAV] if address else []
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
    return html_layout.page(_title(report), _body(report, address), head=refresh, nav=nav)


def write(report: DailyReport, path: Path, address: str = "") -> None:
    """Write the page to a path, replacing an older one. Raises OSError."""
    atomic.replace(path, html(report, address).encode())


def _title(report: DailyReport) -> str:
    if not report.waiting:
        return "Nothing to do"
    return f"{counted(len(report.waiting), 'thing waits', 'things wait')} for a person"


def _body(report: DailyReport, address: str) -> Iterator[str]:
    yield "<h1>Daily report</h1>"
    yield f'<p class="quiet">{incident_reports.when(report.since)} to {incident_reports.when(report.until)}</p>'
    yield html_layout.paragraph(f"{report.sentence[:1].upper()}{report.sentence[1:]}.")
    if not report.items:
        yield html_layout.paragraph("There were no incidents, and nothing waits for a person.", "quiet")
    yield '<ul class="tiles">'
    for name, value, is_red in _tiles(report):
        yield f"<li{_red(is_red)}><b>{escape(value)}</b>{escape(name)}</li>"
    yield "</ul>"
    for number, (title, items) in enumerate(sections(report)):
        yield f'<section aria-labelledby="part-{number}"><h2 id="part-{number}">{escape(title)}</h2>'
        for item in items:
            yield from _article(item, address)
        yield "</section>"
    for title, ids in {"Finished": report.succeeded, "Stopped by a person": report.stopped}.items():
        if ids:
            pages = [
                html_layout.link(training_id, urljoin(address, f"/slipway/trainings/{training_id}") if address else "")
                for training_id in ids
            ]
            yield f"<h2>{title}</h2><p>{', '.join(pages)}</p>"


def _tiles(report: DailyReport) -> Iterator[tuple[str, str, bool]]:
    yield "waiting for a person", str(len(report.waiting)), bool(report.waiting)
    yield "incidents", str(report.incidents), False
    yield "seconds lost", f"{report.seconds_lost:,.0f}", False
    yield "steps lost", f"{report.steps_lost:,}", False
    yield "finished", str(len(report.succeeded)), False


def _article(item: ReportItem, address: str) -> Iterator[str]:
    link = urljoin(address, item.path) if item.path and address else ""
    name = html_layout.link(item.subject, link)
    cause = escape(item.cause.replace("_", " "))
    what = escape(item.what)
    yield f"<article{_red(item.needs_person)}><h3>{name}: {cause}</h3><p>{what}</p><dl>"
    fields = {
        "to do": item.todo,
        "when": incident_reports.when(item.at) if item.at else "",
        "where": item.where,
        "cost": item.cost,
        "done": item.done,
    }
    for title, value in fields.items():
        if value:
            yield f"<dt>{title}</dt><dd>{html_layout.worded(value)}</dd>"
    if item.command:
        yield f"<dt>evidence</dt><dd><code>{escape(item.command)}</code></dd>"
    yield "</dl></article>"


def _red(is_red: bool) -> str:
    return ' class="red"' if is_red else ""
