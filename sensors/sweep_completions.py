"""Sweep completions: a finished sweep starts the training of its best parameters; an unfinished one goes on.

A sweep whose run is gone is given another, which re-attaches to the trials. When a person cancelled the run, the
sweep is closed and its trials are stopped.
"""

import dagster as dg
from dagster import DagsterRunStatus

from assets import keys
from assets.sweeps.assets import current_subject, find_sweep
from assets.sweeps.controller import Subject
from assets.sweeps.decisions import closing
from assets.sweeps.state import Sweep as SweepState
from assets.sweeps.store import SweepStore
from assets.training import specification, terms
from recipes.schema import Sweep, Training, with_parameters
from resources.compute import trainings
from resources.tiers import Tiers
from resources.tracking import Tracking
from sensors import runs
from trainer import lock

BY = "sweep completions"


def sweep_completions(sweeps: dict[str, Sweep], recipes: dict[str, Training]) -> dg.SensorDefinition:
    """The sensor over all sweep recipes."""

    @dg.sensor(
        name="sweep_completions",
        asset_selection='key:"*/sweep"',
        minimum_interval_seconds=2,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts the training of a completed sweep's best parameters; resumes a sweep that lost its run.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, tracking: Tracking) -> dg.SensorResult:
        requests: list[dg.RunRequest] = []
        for recipe in sweeps.values():
            try:
                subject = current_subject(recipe, recipes[recipe.training], tiers, tracking)
            except ValueError:
                continue
            store = find_sweep(subject, tiers)
            sweep = store.state()
            if sweep is None:
                continue
            if sweep.closed is None or sweep.running:
                requests += _resume(context.instance, store, sweep, recipe)
            else:
                _start_best(context.instance, subject, store, tiers)
        return dg.SensorResult(run_requests=requests)

    return sensor


def _resume(instance: dg.DagsterInstance, store: SweepStore, sweep: SweepState, recipe: Sweep) -> list[dg.RunRequest]:
    """A run that goes on with the sweep; after a person's cancellation, one that stops its trials."""
    tags = {keys.SWEEP_TAG: store.sweep}
    if runs.unfinished(instance, tags):
        return []
    run = runs.newest(instance, tags)
    if run is not None and run.dagster_run.status is DagsterRunStatus.CANCELED:
        if sweep.closed is None:
            with lock.exclusive(store.folder):
                store.append(closing(sweep, "stopped", f"run {run.dagster_run.run_id} was cancelled"))
    elif not runs.may_request(instance, tags):
        return []
    return [runs.request([keys.key(recipe.name, "sweep")], tags)]


def best_training(subject: Subject, store: SweepStore) -> tuple[Training, dict[str, object]] | None:
    """The training recipe with the best parameters of a completed sweep, and where they come from."""
    sweep = store.state()
    if sweep is None or sweep.closed is None or sweep.closed.outcome != "complete" or sweep.best is None:
        return None
    recipe = with_parameters(subject.training, dict(sweep.best.parameters))
    return recipe, {"sweep": store.sweep, "trial": sweep.best.number, **sweep.best.parameters}


def _start_best(instance: dg.DagsterInstance, subject: Subject, store: SweepStore, tiers: Tiers) -> None:
    """Want the training of the best parameters to run, unless it has been wanted before; the job watch starts it."""
    best = best_training(subject, store)
    if best is None:
        return
    recipe, origin = best
    known, wanted = trainings(tiers), specification(recipe, subject.snapshot, tiers)
    if known.store(wanted.id).desired() is None:
        training = known.propose(wanted, terms(recipe, origin))
        keys.add_partition(instance, keys.training_partitions(recipe.name), training.id)
        known.start(training, BY, f"sweep {store.sweep} is complete")
