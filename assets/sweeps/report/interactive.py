"""The curves of the best trials for the page's script, which draws them to be pointed at and looked at closer. Pure.

The picture of all trials stands beside them: a few lines can be told apart by their figures, some hundred only as a
crowd.
"""

from collections.abc import Iterator
from typing import Any

from slipway.assets.sweeps.choice import WRITTEN
from slipway.assets.sweeps.report.pictures import points_of
from slipway.assets.sweeps.report.results import SweepReport
from slipway.resources.pages import curves

BEST = 7
"""So many of the best trials are drawn, and the recipe as it is written."""
READING = (
    "The best trials, and the recipe as it is written. Point at a curve to read its figures; click a name to hide it; "
    "drag to look closer; double-click to see all."
)


def data(report: SweepReport) -> dict[str, Any]:
    """What the script draws; JSON. Without a figure where no trial has reported yet."""
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


def parts(drawn: dict[str, Any]) -> Iterator[str]:
    """What the page has of them: the place, the data, and the same as a table."""
    yield from curves.places(drawn, READING)
    yield curves.given(drawn)
    yield curves.table(drawn)


def _label(number: int, report: SweepReport) -> str:
    names = [name for name, trial in (("the best", report.best_trial), ("as written", WRITTEN)) if trial == number]
    return ", ".join([f"trial {number}", *names])
