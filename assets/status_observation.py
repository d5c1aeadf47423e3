"""Status observation: the status of a running training in the UI, as text, numbers for plots, and curves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets import keys, plots, spent
from slipway.resources.pages.training import address
from slipway.resources.trainings import accounts
from slipway.resources.trainings.metric_series import VALIDATION, CurveFold
from slipway.resources.trainings.status import TrainingStatus

STATE = "state"
STATUS = "standing"
FIGURES = ("tokens_per_second", "samples_per_second", "mfu", "learning_rate", "gradient_norm")


def observation(
    recipe: str, training: str, name: str, stands: TrainingStatus, fold: CurveFold, folder: Path, pictures: bool
) -> dg.AssetObservation:
    """The observation of a training's partition; `pictures` adds its curves and the accounting of its time."""
    return dg.AssetObservation(
        keys.key(recipe, "training"),
        partition=training,
        description=stands.summary,
        metadata={**metadata(training, name, stands), **(_pictures(fold, folder) if pictures else {})},
    )


def metadata(training: str, name: str, stands: TrainingStatus) -> dict[str, Any]:
    """State and known metrics. A metric always has the same type, so that Dagster can plot it."""
    figures: Mapping[str, float] = dict(stands.figures)
    entries: dict[str, Any] = {
        STATUS: stands.summary,
        STATE: stands.state,
        "name": name,
        "report": dg.MetadataValue.url(address(training)),
        "step": stands.step,
        "steps": stands.steps,
        "seconds_left": round(stands.seconds_left, 1) if stands.seconds_left is not None else None,
        "loss": _readable(stands.loss),
        "best_loss": _readable(stands.best_loss),
        "best_step": stands.best_step,
        **{figure: _readable(figures.get(figure)) for figure in FIGURES},
        "checkpoint": stands.checkpoint,
        "incarnation": stands.incarnation,
        "nodes": ", ".join(stands.nodes) or None,
    }
    return {label: value for label, value in entries.items() if value is not None}


def _readable(value: float | None) -> float | None:
    """A number rounded to six digits: Dagster shows all digits, of which the rest are noise in a 32-bit float."""
    return None if value is None else float(f"{value:.6g}")


def _pictures(fold: CurveFold, folder: Path) -> dict[str, Any]:
    plotted: dict[str, Any] = {}
    steps = fold.steps
    losses = {
        label: _points(steps, fold.means(column))
        for label, column in (("training", "loss"), ("validation", VALIDATION))
    }
    if any(losses.values()):
        plotted["loss_curve"] = plots.curve(
            {label: points for label, points in losses.items() if points}, "step", "loss"
        )
    for column, unit in (
        ("tokens_per_second", "tokens/s"),
        ("learning_rate", "learning rate"),
        ("gradient_norm", "norm"),
    ):
        points = _points(steps, fold.means(column))
        if points:
            plotted[f"{column}_curve"] = plots.curve({column.replace("_", " "): points}, "step", unit)
    account = accounts.of_if_any(folder)
    if account is not None and account[0].wall > 0:
        plotted["time_spent"] = dg.MetadataValue.md(spent.table(account[0]))
    return plotted


def _points(steps: list[int], means: list[float | None]) -> list[tuple[int, float]]:
    return [(step, value) for step, value in zip(steps, means, strict=False) if value is not None]
