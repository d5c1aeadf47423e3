"""The report of a sweep as one self-contained HTML page.

Pictures are inline SVG with their labels as text. The line of one of the best trials links to its row. The page's
script draws the curves of the best trials; without scripts, a table has the same numbers.
"""

import re
from collections.abc import Iterator
from html import escape
from typing import Any

from slipway.assets import figures
from slipway.assets.sweeps.full_scale_choice import WRITTEN
from slipway.assets.sweeps.report import pictures
from slipway.assets.sweeps.report.pictures import points_of
from slipway.assets.sweeps.report.results import SweepReport
from slipway.assets.sweeps.report.text import (
    ROW_TAIL,
    RUNG_HEAD,
    cells,
    duration,
    findings,
    format_value,
    numbers,
    parameter_names,
    rung_cells,
)
from slipway.resources import html_layout
from slipway.resources.pages import curves
from slipway.trainer.base.quantities import counted

HEAD = 1000
"""The number of first characters of a page that contain its mark."""
BEST = 7
"""The number of best trials to draw, besides the recipe as it is written."""
READING = (
    "The best trials, and the recipe as it is written. Point at a curve to read its values; click a name to hide it; "
    "drag to zoom in; double-click to see all."
)


def html(report: SweepReport) -> str:
    """The report as the text of one HTML page, in the common layout."""
    title = f"{report.outcome}, {_ended(report)} of {counted(report.planned, 'trial')} ended: sweep {report.sweep}"
    live = report.outcome == "open"
    return html_layout.page(title, _body(report), head=marked(report), live=live, scripts=curves.scripts())


def marked(report: SweepReport) -> str:
    """The page's mark: the number of events of the log that it is made from."""
    return f'<meta name="slipway-events" content="{report.events}">'


def curve_data(report: SweepReport) -> dict[str, Any]:
    """The JSON data for the page's script. It has no figure before the first report."""
    rows = {row.trial: row for row in report.rows}
    numbers = dict.fromkeys([*report.order[:BEST], *([WRITTEN] if WRITTEN in rows else [])])
    points = {number: dict(zip(*points_of(rows[number]), strict=True)) for number in numbers}
    points = {number: known for number, known in points.items() if known}
    steps = sorted({step for known in points.values() for step in known})
    series = [
        {"label": _label(number, report), "values": curves.rounded([known.get(step) for step in steps])}
        for number, known in points.items()
    ]
    figure = {"id": "trials", "title": "Validation loss of the best trials", "series": series}
    return {"steps": steps, "figures": [figure] if series else [], "checkpoints": [], "marks": []}


def curve_parts(drawn: dict[str, Any]) -> Iterator[str]:
    """The parts of the page for the curves: the place, the data, and a table of the same numbers."""
    yield from curves.containers(drawn, READING)
    yield curves.data_script(drawn)
    yield curves.table(drawn)


def _body(report: SweepReport) -> Iterator[str]:
    yield f"<h1>Sweep {escape(report.sweep)}: {escape(report.outcome)}</h1>"
    yield html_layout.tiles(_tiles(report))
    for line in findings(report):
        yield html_layout.paragraph(line, "warning" if line.startswith("Warning:") else "")
    names = parameter_names(report)
    if report.best_trial is not None:
        yield "<h2>Best parameters</h2>"
        yield html_layout.table(
            ["parameter", "best"], [[name, format_value(report.best_parameters.get(name))] for name in names]
        )
    for title, figure in pictures.pictures(report).items():
        yield f"<h2>{escape(title)}</h2>"
        yield f'<div role="img" aria-label="{escape(title)}">{_without_size(figures.svg(figure, title))}</div>'
        if title == "Curves":
            yield from curve_parts(curve_data(report))
        if title == "Rungs":
            yield html_layout.table(RUNG_HEAD, list(rung_cells(report)))
    if report.failures:
        yield "<h2>Failures</h2>"
        failed = [[str(len(failure.trials)), numbers(failure.trials), failure.reason] for failure in report.failures]
        yield html_layout.table(["trials", "which", "reason"], failed)
    yield "<h2>Trials, the best first</h2>"
    rows = {row.trial: row for row in report.rows}
    table = [cells(rows[number], names) for number in report.order]
    yield html_layout.table(
        ["trial", *names, *ROW_TAIL], table, [_attributes(report, number) for number in report.order]
    )


def _tiles(report: SweepReport) -> Iterator[tuple[str, str]]:
    yield "trials ended", f"{_ended(report)} of {report.planned}"
    yield "best validation loss", format_value(report.best_value)
    won = report.won
    lower = report.won is None or report.won.difference >= 0
    what = f"{'below' if lower else 'above'} that of the recipe as it is written"
    yield what, f"{abs(won.difference):.4f}" if won else "not known"
    yield "of the steps saved by stopping trials early", f"{report.compute_saved:.0%}"
    value, _, unit = duration(report.rank_hours).partition(" ")
    yield f"{unit}, all trials", value
    yield "trials failed", str(sum(len(failure.trials) for failure in report.failures))


def _ended(report: SweepReport) -> int:
    """The number of trials that have ended."""
    return sum(not row.outcome.startswith(("pending", "running", "paused")) for row in report.rows)


def _attributes(report: SweepReport, number: int) -> str:
    marks = [mark for mark, trial in (("best", report.best_trial), ("written", 0)) if trial == number]
    kind = f' class="{" ".join(marks)}"' if marks else ""
    return f' id="trial-{number}"{kind}'


def _without_size(svg: str) -> str:
    """An SVG without a fixed size, with coordinates rounded to a hundredth and unchanged texts."""
    head, rest = svg.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    rest = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), rest)
    return f"{head}>{rest}"


def _label(number: int, report: SweepReport) -> str:
    names = [name for name, trial in (("the best", report.best_trial), ("as written", WRITTEN)) if trial == number]
    return ", ".join([f"trial {number}", *names])
