"""The page of a sweep in its folder: `report.html`, replaced atomically while the sweep runs and when it has ended."""

import time
from collections.abc import Mapping
from pathlib import Path

from slipway.assets.sweeps.report.page import HEAD, html, marked
from slipway.assets.sweeps.report.results import SweepReport, report
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from slipway.resources.trainings.store import TRIALS, Trainings
from slipway.trainer.base import atomic

PAGE = "report.html"
SHARE = 0.05
"""The largest share of time for making the page while the sweep runs."""
LEAST_SECONDS = 10.0
"""The shortest time between two pages."""


def page_of(store: SweepStore) -> Path:
    """The path of a sweep's page, whether it exists or not."""
    return store.folder / PAGE


def report_of(store: SweepStore, sweep: SweepState) -> SweepReport:
    """The report of a sweep in this state. Raises OSError, and ValueError for a log of another version."""
    return report(sweep, store.read(), ranks_per_node(store))


def ranks_per_node(store: SweepStore) -> int:
    """A trial's ranks per node, from the first trial's run policy; 1 before it is proposed."""
    try:
        return Trainings(store.folder / TRIALS).store(f"{store.sweep}.0").run_policy().ranks_per_node
    except ValueError:
        return 1


def write(store: SweepStore, report: SweepReport) -> Path:
    """Write the page of this report; returns its path. Raises OSError."""
    path = page_of(store)
    atomic.replace(path, html(report).encode(), lasting=report.outcome != "open")
    return path


def current(store: SweepStore, sweep: SweepState) -> Path:
    """The page of the sweep in this state; it is written if necessary. Raises OSError, and as `report_of` does."""
    path = page_of(store)
    report = report_of(store, sweep)
    try:
        with open(path, encoding="utf-8") as file:
            if marked(report) in file.read(HEAD):
                return path
    except FileNotFoundError:
        pass
    return write(store, report)


class ReportKeeper:
    """Keeps a sweep's page up to date, within a bounded share of the time."""

    def __init__(self, store: SweepStore) -> None:
        self._store = store
        self._next = 0.0
        self._reported_progress: Mapping[int, tuple[str, int]] = {}

    def update(self, sweep: SweepState) -> SweepReport | None:
        """Write the page if a trial has progressed since the last time; returns the report of a written page.

        Two pages are at least `LEAST_SECONDS` apart, and far enough to spend less than `SHARE` of the time on them.
        Raises OSError.
        """
        begun = time.monotonic()
        if begun < self._next:
            return None
        progress = {trial.number: (trial.state, trial.last_step) for trial in sweep.trials.values()}
        if not progress or progress == self._reported_progress:
            return None
        report = report_of(self._store, sweep)
        write(self._store, report)
        ended = time.monotonic()
        self._reported_progress = progress
        self._next = ended + max(LEAST_SECONDS, (ended - begun) / SHARE)
        return report
