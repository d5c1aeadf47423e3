"""A sweep in MLflow: a run for each trial, with a readable name, below a run for the sweep."""

from pathlib import Path

from slipway.assets.sweeps.report import compared, report_file
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from slipway.resources.mlflow.sweeps import SweepRun, TrialRun, trial_name
from slipway.resources.trainings.store import PendingWork, WorkQueue, enqueue, pending_work_in

OPEN = ".open"
GENERATION = 0
"""The generation of a sweep's pending work: unlike a training, a sweep has only one."""


def owe(store: SweepStore) -> None:
    """Record that the sweep must be sent to MLflow. Raises OSError."""
    if store.sweep not in (pending.training for pending in pending_work_below(store.folder.parent)):
        enqueue(_folder(store.folder.parent), store.sweep, GENERATION)


def pending_work_below(sweeps: Path) -> list[PendingWork]:
    """The pending work for the sweeps of a folder that MLflow does not have completely. Raises OSError."""
    return pending_work_in(_folder(sweeps))


def trial_run(store: SweepStore, sweep: SweepState, id: str) -> TrialRun | None:
    """The run of the trial with this id; None if the log does not have the trial yet."""
    number = id.rpartition(".")[2]
    trial = sweep.trials.get(int(number)) if number.isdigit() else None
    if trial is None:
        return None
    name = trial_name(store.sweep, trial.number, trial.parameters, sweep.plan.written)
    return TrialRun(store.folder, store.sweep, name, trial.number)


def sweep_run(store: SweepStore, sweep: SweepState) -> SweepRun:
    """The parent run, with the page once the sweep is over. Raises OSError, and ValueError as the store does."""
    over = is_over(sweep)
    best = sweep.best
    recipe = store.specification()["sweep"]
    return SweepRun(
        sweep=store.sweep,
        experiment=recipe["training"],
        outcome=sweep.closed.outcome if sweep.closed and over else "open",
        best_trial=best.number if best else None,
        best_parameters=dict(best.parameters) if best else {},
        bests=_bests(sweep),
        tags={"slipway.sampler": sweep.plan.sampler, "slipway.scheduler": str(sweep.plan.scheduler["kind"])},
        page=report_file.current(store, sweep) if over else None,
    )


def is_over(sweep: SweepState) -> bool:
    """Whether the sweep is closed and all of its trials have ended."""
    return sweep.closed is not None and not sweep.not_ended


def _bests(sweep: SweepState) -> list[tuple[int, float, float]]:
    """(trials ended, best value, time) for each trial that was the best when it ended."""
    ended = sorted(
        (trial for trial in sweep.finished if trial.ended), key=lambda trial: trial.ended.at if trial.ended else 0.0
    )
    bests: list[tuple[int, float, float]] = []
    best = None
    for index, trial in enumerate(ended, start=1):
        if trial.value is None or not trial.ended:
            continue
        merit = compared.merit(sweep, trial)
        if best is None or merit < best:
            best = merit
            bests.append((index, trial.value, trial.ended.at))
    return bests


def _folder(sweeps: Path) -> Path:
    return sweeps / OPEN / WorkQueue.TRACKING
