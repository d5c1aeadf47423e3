"""Sweep completions: starts the training that a completed sweep leads to; resumes an unfinished sweep.

Should be: an open sweep has a run and its recipe's budget, and a completed one has led to its training.
Is: the sweep's log, its newest run, and the training's store.
Follows: a sweep that lost its run gets another one, which re-attaches to the trials. When a person cancelled the run,
the sweep is closed and its trials are stopped. The training with the best parameters is wanted, or the recipe as it is
written where nothing beats that (`slipway.assets.sweeps.full_scale_choice`); the job watch starts it.
"""

from pathlib import Path

import dagster as dg
from dagster import DagsterRunStatus

from slipway.assets import keys, subjects
from slipway.assets.sweeps.assets import current_subject, find_sweep
from slipway.assets.sweeps.controller import is_over
from slipway.assets.sweeps.full_scale import led_to
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from slipway.assets.training import run_policy, specification
from slipway.recipes.sweep import SweepRecipe
from slipway.recipes.training import ModelRecipe
from slipway.resources import identity
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import all_trainings
from slipway.sensors.support.runs import NewestRuns
from slipway.sensors.support.tick import Tick
from slipway.trainer.record import changes

NAME = "sweep_completions"
BY = "sweep completions"


def sweep_completions(sweeps: dict[str, SweepRecipe], recipes: dict[str, ModelRecipe]) -> dg.SensorDefinition:
    """The sensor over all sweep recipes."""
    followed: dict[Path, SweepStore] = {}  # each store reads what is new since its last look

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/sweep"',
        minimum_interval_seconds=2,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts the training that a completed sweep leads to; resumes a sweep that lost its run.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, tracking: Tracking) -> dg.SensorResult:
        tick = Tick(context, NAME)
        tick.for_each(
            sweeps.values(),
            lambda recipe: subjects.sweep(recipe.name),
            lambda recipe: _bring_to_its_training(tick, recipe, recipes[recipe.training], tiers, tracking, followed),
        )
        return tick.result()

    return sensor


def _bring_to_its_training(
    tick: Tick,
    recipe: SweepRecipe,
    training: ModelRecipe,
    tiers: Tiers,
    tracking: Tracking,
    followed: dict[Path, SweepStore],
) -> None:
    """Give one sweep the budget that its recipe has now; resume it, or start the training that it leads to."""
    try:
        subject = current_subject(recipe, training, tiers, tracking)
    except ValueError:  # its dataset has no snapshot yet, or its initial weights are not there: nothing to search on
        return
    current = find_sweep(subject, tiers)
    store = followed.setdefault(current.folder, current)
    if store.state() is None:
        return
    store.ask_for_the_recipes(subject.budget())
    sweep = store.state()
    assert sweep is not None
    if not is_over(sweep):
        _resume(tick, store, sweep, recipe)
    else:
        _start_best(tick.instance, subject, sweep, tiers)


def _resume(tick: Tick, store: SweepStore, sweep: SweepState, recipe: SweepRecipe) -> None:
    """Request a run that continues the sweep; after a person's cancellation, one that stops its trials."""
    runs = NewestRuns(tick.instance, keys.SWEEP_TAG, [store.sweep])
    run = runs.newest(store.sweep)
    if run is not None and run.unfinished:
        return
    if run is not None and run.status is DagsterRunStatus.CANCELED:
        if sweep.closed is None:
            store.cancel(identity.of_cancellation(run.tags, BY), f"run {run.id} was cancelled")
    elif not runs.may_request(store.sweep):
        return
    tick.request([keys.key(recipe.name, "sweep")], {keys.SWEEP_TAG: store.sweep})


def _start_best(instance: dg.DagsterInstance, subject: SearchSubject, sweep: SweepState, tiers: Tiers) -> None:
    """Want the training that the sweep leads to, unless it has been wanted before; the job watch starts it."""
    best = led_to(subject, sweep)
    if best is None:
        return
    root = all_trainings(tiers)
    proposal = specification(best.recipe, subject.snapshot, tiers, best.cause)
    if root.store(proposal.id).desired() is None:
        training = root.propose(proposal, run_policy(best.recipe, best.origin), by=BY)
        for step, values in best.changes[len(changes.numbers(training.folder)) :]:
            changes.propose(training.folder, values, BY, best.cause, after=step)
        keys.add_partition(instance, keys.training_partitions(best.recipe.name), training.id)
        root.start(training, BY, f"sweep {sweep.plan.sweep} is complete: {best.why}")
