"""A person opens the report of a sweep: which trial won, what decided, and what each rung cost."""

import dataclasses
from pathlib import Path

import pytest

from assets.sweeps.report.page import html
from assets.sweeps.report.results import report
from assets.sweeps.state import fold
from tests.assets.sweeps.simulation import budgeted, opened, power_law, whole
from tests.browser.window import Window

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
RUNGS = {"kind": "promotion", "rungs": [3, 9, 27, 81], "eta": 3}


def test_the_report_of_a_sweep_shows_its_curves_its_parameters_and_its_rungs(tmp_path: Path, window: Window):
    played = whole(opened(steps=81, scheduler=RUNGS, seed=1), budgeted(trials=27, parallel=6), power_law)
    log = [dataclasses.replace(event, at=float(at)) for at, event in enumerate(played)]
    made = report(fold(log), log, ranks_per_node=2)
    page = tmp_path / "report.html"
    page.write_text(html(made))
    window.open(page.as_uri())
    window.until_shown(f"Sweep {made.sweep}: complete", "Best parameters", "Curves", "Parallel coordinates", "Rungs")
    assert window.page.locator('[role="img"] svg').count() >= 3
    assert window.page.locator("tr", has_text=f"{made.best_trial}").count() >= 1
    window.picture("sweep", height=4000, above="h2:text-is('Rungs')")
    window.page.set_viewport_size({"width": 390, "height": 800})
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 390, "a phone need not scroll to the side"
