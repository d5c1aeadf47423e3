"""The report of a night as one HTML page: no scripts, nothing from elsewhere, light and dark, also on a phone.

Red is used for what waits for a person, and for nothing else; beside the colour stands the word.
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from urllib.parse import urljoin

from resources.morning.report import MorningItem, MorningReport
from resources.morning.text import sections
from resources.trainings import post_mortem
from trainer.base import atomic

REFRESH_SECONDS = 300
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f23; --page: #fff; --tile: #f3f5f7; --line: #c3ccd5; --quiet: #57606a;
  --link: #0b57d0; --red: #b3261e; --red-page: #fdecea }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --page: #14171a; --tile: #1f2429; --line: #3b444d;
  --quiet: #a3adb7; --link: #8ab4f8; --red: #ff8a80; --red-page: #3a1614 } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
  max-width: 60rem; padding: 1rem }
h1 { font-size: 1.4rem; margin: .5rem 0 } h2 { font-size: 1.15rem; margin: 1.75rem 0 .5rem }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere } p { margin: .25rem 0 } a { color: var(--link) }
.quiet { color: var(--quiet) }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; padding: 0; list-style: none }
.tiles li { background: var(--tile); border-radius: .4rem; padding: .6rem .9rem; flex: 1 1 8rem }
.tiles b { display: block; font-size: 1.25rem }
article { border-left: 4px solid var(--line); background: var(--tile); border-radius: .25rem; margin: .75rem 0;
  padding: .6rem .9rem }
article.red, .tiles li.red { border-left: 4px solid var(--red); background: var(--red-page) }
article.red h3, .tiles li.red b { color: var(--red) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem .9rem; margin: .4rem 0 0 }
dt { color: var(--quiet) } dd { margin: 0; overflow-wrap: anywhere } code { font-size: .9em; overflow-wrap: anywhere }
@media (max-width: 32rem) { dl { grid-template-columns: 1fr } dd { margin-bottom: .35rem } }
"""


def html(report: MorningReport, address: str = "") -> str:
    """The page; `address` is the webserver's, without which nothing is linked."""
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">',
            f"<title>{escape(_title(report))}</title><style>{STYLE}</style></head><body><main>",
            *_body(report, address),
            "</main></body></html>\n",
        ]
    )


def write(report: MorningReport, path: Path, address: str = "") -> None:
    """Put the page at a path, in place of what was there. Raises OSError."""
    atomic.replace(path, html(report, address).encode())


def _title(report: MorningReport) -> str:
    waits = len(report.waiting)
    return f"{waits} wait for a person" if waits else "Nobody is needed"


def _body(report: MorningReport, address: str) -> Iterator[str]:
    yield "<h1>The morning after</h1>"
    yield f'<p class="quiet">{post_mortem.when(report.since)} to {post_mortem.when(report.until)}</p>'
    yield f"<p>{escape(report.sentence)}.</p>"
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
            yield f"<h2>{title}</h2><p>{escape(', '.join(ids))}</p>"


def _tiles(report: MorningReport) -> Iterator[tuple[str, str, bool]]:
    yield "waiting for a person", str(len(report.waiting)), bool(report.waiting)
    yield "incidents", str(report.incidents), False
    yield "seconds lost", f"{report.seconds_lost:,.0f}", False
    yield "steps lost", f"{report.steps_lost:,}", False
    yield "finished", str(len(report.succeeded)), False


def _article(each: MorningItem, address: str) -> Iterator[str]:
    link = urljoin(address, each.path) if each.path and address else ""
    name = f'<a href="{escape(link)}">{escape(each.subject)}</a>' if link else escape(each.subject)
    yield f"<article{_red(each.needs_person)}><h3>{name}: {escape(each.cause)}</h3><p>{escape(each.what)}</p><dl>"
    fields = {
        "to do": each.todo,
        "when": post_mortem.when(each.at) if each.at else "",
        "where": each.where,
        "cost": each.cost,
        "done": each.done,
    }
    for title, value in fields.items():
        if value:
            yield f"<dt>{title}</dt><dd>{escape(value)}</dd>"
    if each.command:
        yield f"<dt>evidence</dt><dd><code>{escape(each.command)}</code></dd>"
    yield "</dl></article>"


def _red(is_red: bool) -> str:
    return ' class="red"' if is_red else ""
