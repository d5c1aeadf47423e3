"""Sweep completions: starts the training of a completed sweep's best parameters; resumes an unfinished sweep.

Should be: an open sweep has a run, and a completed one has led to its training.
Is: the sweep's log, its newest run, and the training's store.
Follows: a sweep that lost its run gets another one, which re-attaches to the trials. When a person cancelled the run,
the sweep is closed and its trials are stopped. The training of the best parameters is wanted; the job watch starts it.
"""

import dagster as dg
from dagster import DagsterRunStatus

from assets import keys, subjects
from assets.sweeps.assets import current_subject, find_sweep
from assets.sweeps.controller import SearchSubject
from assets.sweeps.state import SweepState
from assets.sweeps.store import SweepStore
from assets.training import specification, terms
from recipes.sweep import SweepRecipe
from recipes.training import ModelRecipe, with_parameters
from resources.mlflow.tracking import Tracking
from resources.tiers import Tiers
from resources.trainings.roots import trainings
from sensors.support.runs import NewestRuns
from sensors.support.tick import Tick

NAME = "sweep_completions"
BY = "sweep completions"


def sweep_completions(sweeps: dict[str, SweepRecipe], recipes: dict[str, ModelRecipe]) -> dg.SensorDefinition:
    """The sensor over all sweep recipes."""

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/sweep"',
        minimum_interval_seconds=2,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts the training of a completed sweep's best parameters; resumes a sweep that lost its run.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, tracking: Tracking) -> dg.SensorResult:
        tick = Tick(context, NAME)
        tick.each(
            sweeps.values(),
            lambda recipe: subjects.sweep(recipe.name),
            lambda recipe: _bring_to_its_training(tick, recipe, recipes[recipe.training], tiers, tracking),
        )
        return tick.result()

    return sensor


def _bring_to_its_training(
    tick: Tick, recipe: SweepRecipe, training: ModelRecipe, tiers: Tiers, tracking: Tracking
) -> None:
    """Resume one sweep, or start the training that it leads to."""
    try:
        subject = current_subject(recipe, training, tiers, tracking)
    except ValueError:  # its dataset has no snapshot yet, or its initial weights are not there: nothing to search on
        return
    store = find_sweep(subject, tiers)
    sweep = store.state()
    if sweep is None:
        return
    if sweep.closed is None or sweep.running:
        _resume(tick, store, sweep, recipe)
    else:
        _start_best(tick.instance, subject, store, tiers)


def _resume(tick: Tick, store: SweepStore, sweep: SweepState, recipe: SweepRecipe) -> None:
    """Request a run that continues the sweep; after a person's cancellation, one that stops its trials."""
    runs = NewestRuns(tick.instance, keys.SWEEP_TAG, [store.sweep])
    run = runs.newest(store.sweep)
    if run is not None and run.unfinished:
        return
    if run is not None and run.status is DagsterRunStatus.CANCELED:
        if sweep.closed is None:
            store.cancel(BY, f"run {run.id} was cancelled")
    elif not runs.may_request(store.sweep):
        return
    tick.request([keys.key(recipe.name, "sweep")], {keys.SWEEP_TAG: store.sweep})


def best_training(subject: SearchSubject, store: SweepStore) -> tuple[ModelRecipe, dict[str, object]] | None:
    """The training recipe with the best parameters of a completed sweep, and where they come from."""
    sweep = store.state()
    if sweep is None or sweep.closed is None or sweep.closed.outcome != "complete" or sweep.best is None:
        return None
    recipe = with_parameters(subject.training, dict(sweep.best.parameters))
    return recipe, {"sweep": store.sweep, "trial": sweep.best.number, **sweep.best.parameters}


def _start_best(instance: dg.DagsterInstance, subject: SearchSubject, store: SweepStore, tiers: Tiers) -> None:
    """Want the training of the best parameters to run, unless it has been wanted before; the job watch starts it."""
    best = best_training(subject, store)
    if best is None:
        return
    recipe, origin = best
    root, wanted = trainings(tiers), specification(recipe, subject.snapshot, tiers)
    if root.store(wanted.id).desired() is None:
        training = root.propose(wanted, terms(recipe, origin), by=BY)
        keys.add_partition(instance, keys.training_partitions(recipe.name), training.id)
        root.start(training, BY, f"sweep {store.sweep} is complete")
