"""Curves on a page: what they are drawn from, as JSON, and the places in which the page's script draws them. Pure.

They are drawn by uPlot 1.6.32 (MIT, github.com/leeoniya/uPlot; 51 KB, while plotly's script has 4.5 MB): zoomed by
dragging, with the figures under the pointer. Whoever has no script, or does not see, reads the same from tables.
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
    "A green tick at the bottom is a checkpoint, a dashed line an incident or a restart. Point at a curve to read its "
    "figures; drag to look closer; double-click to see all."
)
ROWS = 20
"""Of the table that says the same as the curves."""
DIGITS = 5


def data(fold: CurveFold) -> dict[str, Any]:
    """What the script draws; JSON."""
    return {
        "steps": fold.steps,
        "figures": list(_figures(fold)),
        "checkpoints": fold.checkpoints,
        "marks": [{"step": mark.step, "kind": mark.kind, "text": mark.text} for mark in fold.marks],
    }


def _figures(fold: CurveFold) -> Iterator[dict[str, Any]]:
    """One figure for each of `TITLES`, and for each figure of a script's own; those that no step has are left out."""
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
    """The values in five digits, which is more than a screen shows."""
    return [None if value is None else float(f"{value:.{DIGITS}g}") for value in values]


def containers(drawn: dict[str, Any], reading: str = READING) -> Iterator[str]:
    """The places in which the script draws, each with what it shows in words; `reading` says how to use them."""
    yield html_layout.paragraph(reading if drawn["steps"] else "No step is done yet.", "quiet")
    yield '<div class="figures">'
    for figure in drawn["figures"]:
        id, title = escape(figure["id"]), escape(figure["title"])
        yield (
            f'<figure aria-labelledby="title-{id}"><button type="button" data-log="{id}" aria-pressed="false">log'
            f'</button><h3 id="title-{id}">{title}</h3>'
            f'<div id="curve-{id}" role="img" aria-label="{escape(description(figure, drawn["steps"]))}"></div>'
            "</figure>"
        )
    yield "</div>"


def data_script(drawn: dict[str, Any]) -> str:
    """The data, for the script."""
    return f'<script type="application/json" id="curves">{embedded(drawn)}</script>'


def embedded(drawn: Any) -> str:
    """JSON as part of a page: nothing in it ends the element that holds it."""
    return json.dumps(drawn, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")


def description(figure: dict[str, Any], steps: Sequence[int]) -> str:
    """A curve in words, for those who do not see it."""
    parts = []
    for series in figure["series"]:
        known = [(step, value) for step, value in zip(steps, series["values"], strict=True) if value is not None]
        if known:
            (first, begin), (last, end), low = known[0], known[-1], min(value for _, value in known)
            parts.append(
                f"{series['label']}: from {html_layout.number(begin)} at step {first:,} to {html_layout.number(end)} "
                f"at step {last:,}, lowest {html_layout.number(low)}"
            )
    return f"{figure['title']}. {'; '.join(parts)}."


def table(drawn: dict[str, Any]) -> str:
    """The same as a table of some steps."""
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
