"""Curves on a page: their data as JSON, and the containers in which the page's script draws them. Pure.

uPlot 1.6.32 draws them (MIT, github.com/leeoniya/uPlot; 51 KB, while plotly's script has 4.5 MB), with zoom by dragging
and the values at the pointer. Tables show the same to readers without scripts or with a screen reader.
"""

import json
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from slipway.resources import html_layout
from slipway.resources.trainings.metric_series import FIGURES, VALIDATION, CurveFold

TITLES = {
    "loss": "Loss",
    "learning_rate": "Learning rate",
    "tokens_per_second": "Throughput, tokens/s",
    "samples_per_second": "Throughput, samples/s",
    "gradient_norm": "Gradient norm, before clipping",
    "mfu": "MFU, share of the peak FLOP/s",
}
READING = (
    "A green tick at the bottom is a checkpoint; a dashed line is an incident or a restart. Point at a curve to read "
    "its values, drag to zoom in, and double-click to zoom out."
)
ROWS = 20
"""The number of rows of the table with the curves' data."""
DIGITS = 5


def data(fold: CurveFold) -> dict[str, Any]:
    """The data for the script, as a JSON document."""
    return {
        "steps": fold.steps,
        "figures": list(_figures(fold)),
        "checkpoints": fold.checkpoints,
        "marks": [{"step": mark.step, "kind": mark.kind, "text": mark.text} for mark in fold.marks],
    }


def _figures(fold: CurveFold) -> Iterator[dict[str, Any]]:
    """One figure for each metric in `TITLES` and for each of a script's own metrics, if any step has it."""
    own = [name for name in fold.curves if name not in (*FIGURES, VALIDATION)]
    names = [name for name in TITLES if name in fold.curves or (name == "loss" and VALIDATION in fold.curves)]
    if "tokens_per_second" in names and "samples_per_second" in names:
        names.remove("samples_per_second")
    for name in [*names, *own]:
        series = [("training" if name == "loss" else name.replace("_", " "), fold.means(name))]
        if name == "loss" and VALIDATION in fold.curves:
            series.append(("validation", fold.means(VALIDATION)))
        figure: dict[str, Any] = {
            "id": f"{name}",
            "title": TITLES.get(name, name.replace("_", " ")),
            "series": [{"label": label, "values": rounded(values)} for label, values in series if values],
        }
        if name == "loss" and fold.width > 1:
            figure["band"] = [rounded(fold.lows), rounded(fold.highs)]
        yield figure


def rounded(values: Sequence[float | None]) -> list[float | None]:
    """The values rounded to five digits, which is more than a screen can show."""
    return [None if value is None else float(f"{value:.{DIGITS}g}") for value in values]


def containers(drawn: dict[str, Any], reading: str = READING) -> Iterator[str]:
    """The containers for the script, each with a description in words; `reading` explains how to use the curves."""
    yield html_layout.paragraph(reading if drawn["steps"] else "No step has been completed yet.", "quiet")
    yield '<div class="figures">'
    for figure in drawn["figures"]:
        id = escape(figure["id"])
        title = escape(figure["title"])
        yield (
            f'<figure aria-labelledby="title-{id}"><button type="button" data-log="{id}" aria-pressed="false">log'
            f'</button><h3 id="title-{id}">{title}</h3>'
            f'<div id="curve-{id}" role="img" aria-label="{escape(description(figure, drawn["steps"]))}"></div>'
            "</figure>"
        )
    yield "</div>"


def data_script(drawn: dict[str, Any]) -> str:
    """The data as an element that the script reads."""
    return f'<script type="application/json" id="curves">{embedded(drawn)}</script>'


def embedded(drawn: Any) -> str:
    """JSON that is safe inside a script element of a page."""
    return json.dumps(drawn, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")


def description(figure: dict[str, Any], steps: Sequence[int]) -> str:
    """A curve in words, for screen readers."""
    parts = []
    for series in figure["series"]:
        known = [(step, value) for step, value in zip(steps, series["values"], strict=True) if value is not None]
        if known:
            (first, begin) = known[0]
            (last, end) = known[-1]
            low = min(value for _, value in known)
            parts.append(
                f"{series['label']}: from {html_layout.number(begin)} at step {first:,} to {html_layout.number(end)} "
                f"at step {last:,}, lowest {html_layout.number(low)}"
            )
    return f"{figure['title']}. {'; '.join(parts)}."


def table(drawn: dict[str, Any]) -> str:
    """The data of the curves as a table of some steps."""
    series = [
        (f"{figure['title']}: {curve['label']}", curve["values"])
        for figure in drawn["figures"]
        for curve in figure["series"]
    ]
    if not drawn["steps"]:
        return ""
    count = len(drawn["steps"])
    chosen = sorted({round(index * (count - 1) / max(1, ROWS - 1)) for index in range(ROWS)})
    rows = [[f"{drawn['steps'][at]:,}", *(html_layout.number(values[at]) for _, values in series)] for at in chosen]
    inner = html_layout.table(["step", *(name for name, _ in series)], rows)
    return f"<details><summary>The curves as a table</summary>{inner}</details>"


def scripts() -> str:
    """The script of a page with curves."""
    return html_layout.static("uplot.js") + "\n" + html_layout.static("page.js").replace("</script", "<\\/script")
