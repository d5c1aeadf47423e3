"""A sweep in the UI: its pictures, tables and the path of its page, while it runs and at the end."""

from typing import Any

import dagster as dg

from slipway.assets import plots, spent
from slipway.assets.sweeps.report import pictures, report_file
from slipway.assets.sweeps.report.results import SweepReport
from slipway.assets.sweeps.report.text import MAX_ROWS, markdown
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from slipway.assets.sweeps.trials import trials_of
from slipway.resources.pages.training import ROOT

OBSERVATIONS = 8
"""The most observations of a running sweep, because the event log stores each picture twice."""


def metadata(report: SweepReport, store: SweepStore) -> dict[str, Any]:
    """The report as metadata of the sweep's asset, at most about 200 KB for any number of trials."""
    drawn = pictures.pictures(report).items()
    best: dict[str, Any] = {}
    if report.best_trial is not None and report.best_value is not None:
        best = {
            "best_trial": report.best_trial,
            "best_validation_loss": report.best_value,
            "best_parameters": dg.MetadataValue.json(dict(report.best_parameters)),
            **({"won_over_the_recipe": report.won.difference} if report.won else {}),
        }
    return {
        "sweep": report.sweep,
        "trials": len(report.rows),
        **best,
        "compute_saved": report.compute_saved,
        "rank_hours": report.rank_hours,
        **_money(report, store),
        "report": dg.MetadataValue.md(markdown(report, most=MAX_ROWS)),
        "page": dg.MetadataValue.url(f"{ROOT}/sweeps/{store.folder.name}"),
        "page_file": dg.MetadataValue.path(str(report_file.page_of(store))),
        **{title.lower().replace(" ", "_"): plots.png_markdown(figure, title) for title, figure in drawn},
        "dagster/uri": str(store.folder),
    }


def _money(report: SweepReport, store: SweepStore) -> dict[str, Any]:
    """The cost of the trials, by the run policy of one of them; empty before the first trial and without prices."""
    for trial in trials_of(store).stores():
        policy = trial.run_policy()
        return spent.money(report.rank_hours, bool(policy.kubernetes.get("spot", False)), policy.owner)
    return {}


class SweepPictures:
    """Keeps the page of a running sweep up to date, and occasionally reports the sweep to the UI."""

    def __init__(self, context: dg.AssetExecutionContext, store: SweepStore, key: dg.AssetKey) -> None:
        self._context = context
        self._store = store
        self._key = key
        self._keeper = report_file.ReportKeeper(store)
        self._part = 0

    def update(self, sweep: SweepState) -> None:
        """Update the page if it is due. A failed write does not stop the sweep."""
        try:
            report = self._keeper.update(sweep)
        except OSError as error:
            self._context.log.warning(f"the report of {self._store.sweep} is not written: {error}")
            return
        part = OBSERVATIONS * len(sweep.finished) // max(1, sweep.budget.trials)
        if report is not None and part > self._part and sweep.closed is None:
            self._part = part
            self._context.log_event(dg.AssetObservation(self._key, metadata=metadata(report, self._store)))
