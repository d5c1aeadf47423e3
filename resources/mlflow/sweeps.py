"""Sweeps in MLflow: one parent run for each sweep, with its trials as nested runs.

The parent is looked up by the sweep's id, so that a repeated delivery after a crash creates no second one. It shows the
current state of the sweep, so repeating a delivery changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.resources.mlflow import filters
from slipway.trainer.base import codec

if TYPE_CHECKING:
    from mlflow import MlflowClient

SWEEP_TAG = "slipway.sweep"
"""The tag of the parent and of its trials with the sweep's id."""
PARENT_TAG = "slipway.sweep-parent"
"""The tag of the parent only with the sweep's id."""
TRIAL_TAG = "slipway.trial"
"""The tag of a trial with its number."""
STATE_TAG = "slipway.trial-ended"
"""The tag of a trial with how it ended, and why."""
NESTED = "mlflow.parentRunId"
"""MLflow's own tag of a nested run."""
NAME_LENGTH = 200
TRACKING_FILE = "tracking.json"
STATUS = {"complete": "FINISHED", "failed": "FAILED", "stopped": "KILLED", "open": "RUNNING"}


@dataclass(frozen=True)
class TrialRun:
    """The attributes of a trial's run that other trainings' runs do not have."""

    folder: Path
    """The folder of its sweep."""
    sweep: str
    name: str
    """The name in MLflow's list: the sweep, the trial, and the parameters that differ."""
    number: int


@dataclass(frozen=True)
class SweepRun:
    """A sweep as its parent run shows it."""

    sweep: str
    experiment: str
    outcome: str
    """complete, failed, stopped or open."""
    best_trial: int | None
    best_parameters: Mapping[str, Any]
    bests: Sequence[tuple[int, float, float]]
    """(number of ended trials, best value, seconds since the epoch) for each trial that was the best when it ended."""
    tags: Mapping[str, str]
    page: Path | None
    """The report, which becomes an artefact."""


@dataclass
class ShippedSweep:
    """The record of what of a sweep is in MLflow."""

    run: str = ""
    """The parent run; empty before it was created."""
    delivered: list[str] = field(default_factory=list)
    """The version of the sweep's records at the last complete delivery."""

    @staticmethod
    def of(folder: Path) -> "ShippedSweep":
        return codec.read_if_there(folder / TRACKING_FILE, ShippedSweep) or ShippedSweep()

    def save(self, folder: Path) -> None:
        codec.replace(folder / TRACKING_FILE, self)


def trial_name(sweep: str, number: int, parameters: Mapping[str, Any], written: Mapping[str, Any]) -> str:
    """A name such as `tiny-decoder-0123456789ab.3 learning_rate=0.01 kind=muon`, with the parameters that differ from
    `written`, the values in the recipe. If `written` is empty, with all parameters."""
    differing = {name: value for name, value in parameters.items() if name not in written or written[name] != value}
    last = [name.rpartition(".")[2] for name in differing]
    labels = [short if last.count(short) == 1 else name for short, name in zip(last, differing, strict=True)]
    parts = [f"{label}={_short(value)}" for label, value in zip(labels, differing.values(), strict=True)]
    if parameters and not differing:
        parts = ["as the recipe is written"]
    return " ".join([f"{sweep}.{number}", *parts])[:NAME_LENGTH]


def parent_run(client: "MlflowClient", folder: Path, sweep: str, experiment: str) -> str:
    """The parent run of the sweep in `folder`, created if there is none. `experiment` is MLflow's id."""
    shipped = ShippedSweep.of(folder)
    if not shipped.run:
        known = client.search_runs([experiment], filters.equal(f"tags.`{PARENT_TAG}`", sweep), max_results=1)
        tags = {PARENT_TAG: sweep, SWEEP_TAG: sweep}
        parent = known[0] if known else client.create_run(experiment, run_name=sweep, tags=tags)
        shipped.run = str(parent.info.run_id)
        shipped.save(folder)
    return shipped.run


def deliver(client: "MlflowClient", run: str, sweep: SweepRun) -> None:
    """Update the parent run. Idempotent."""
    from mlflow.entities import Metric, RunTag

    best = {f"best.{name}": str(value) for name, value in sweep.best_parameters.items()}
    if sweep.best_trial is not None:
        best["best.trial"] = str(sweep.best_trial)
    tags = [RunTag(name, value) for name, value in {**sweep.tags, **best}.items()]
    metrics = [Metric("best_value", value, int(at * 1000), ended) for ended, value, at in sweep.bests]
    client.log_batch(run, metrics=metrics[-1000:], tags=tags[:100])
    if sweep.page is not None and sweep.page.exists():
        client.log_artifact(run, str(sweep.page))
    if sweep.outcome != "open":
        client.set_terminated(run, STATUS[sweep.outcome])
    elif client.get_run(run).info.status != STATUS["open"]:  # the sweep was reopened for more trials
        client.update_run(run, status=STATUS["open"])


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_short(item)}" for name, item in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)
