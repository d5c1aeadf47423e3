"""A person opens the report of a sweep: which trial won, what decided, and what each rung cost."""

import dataclasses
import re
from pathlib import Path

import pytest

from slipway.assets.sweeps.report.page import html
from slipway.assets.sweeps.report.results import report
from slipway.assets.sweeps.state import fold
from tests.assets.sweeps.simulation import budgeted, log_of, opened, power_law
from tests.browser.window import Window

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
RUNGS = {"kind": "promotion", "rungs": [3, 9, 27, 81], "eta": 3}


def test_the_report_of_a_sweep_shows_its_curves_its_parameters_and_its_rungs(tmp_path: Path, window: Window):
    played = log_of(opened(steps=81, scheduler=RUNGS, seed=1), budgeted(trials=27, parallel=6), power_law)
    log = [dataclasses.replace(event, at=float(at)) for at, event in enumerate(played)]
    sweep_report = report(fold(log), log, ranks_per_node=2)
    page = tmp_path / "report.html"
    page.write_text(html(sweep_report))
    window.open(page.as_uri())
    window.until_shown(
        f"Sweep {sweep_report.sweep}: complete", "Best parameters", "Curves", "Parallel coordinates", "Rungs"
    )
    assert window.page.locator('[role="img"] svg').count() >= 3
    _point_at_a_curve(window, sweep_report.best_trial)
    assert window.page.locator("tr", has_text=f"{sweep_report.best_trial}").count() >= 1
    window.picture("sweep", height=4000, above="h2:text-is('Rungs')")
    window.page.set_viewport_size({"width": 390, "height": 800})
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 390, "a phone need not scroll to the side"


def _point_at_a_curve(window: Window, best: int | None) -> None:
    """The figures under the pointer are told, of the best trial and of the recipe as it is written."""
    plot = window.page.locator("#curve-trials .u-over")
    plot.scroll_into_view_if_needed()
    plot.hover(position={"x": 1, "y": 100})
    legend = window.page.locator("#curve-trials .u-legend").inner_text()
    assert f"trial {best}, the best" in legend and "trial 0, as written" in legend
    assert re.search(r"the best\W*\d\.\d", legend), legend
