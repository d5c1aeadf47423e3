"""Retraining: trains a recipe anew on its schedule, on the snapshot of the day.

Should be: each tick of a recipe's schedule has led to a training of its own.
Is: the current snapshot of the recipe's dataset.
Follows: a training whose cause key is the tick, so that a tick that is evaluated twice gives one training. Where the
recipe's trainings have spent its budget (`renewal.gpu_hours`), the tick says so and starts none.
"""

import time

import dagster as dg

from slipway.assets import keys, training_data
from slipway.assets.initial import with_initial_weights
from slipway.assets.renewing import NotRenewed, check_budget, of_recipe
from slipway.assets.training import specification, terms
from slipway.recipes.training import TrainingRecipe
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.roots import trainings
from slipway.resources.trainings.store import Trainings
from slipway.sensors import job_watch


def retraining(recipe: TrainingRecipe) -> dg.ScheduleDefinition:
    """The schedule of one training recipe."""
    assert recipe.retrain is not None

    @dg.schedule(
        name=f"{keys.lane(recipe.name)}_retraining",
        cron_schedule=recipe.retrain,
        target=dg.AssetSelection.assets(keys.key(recipe.name, "training")),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Trains {recipe.name} anew on the current snapshot.",
    )
    def schedule(
        context: dg.ScheduleEvaluationContext, tiers: Tiers, tracking: Tracking
    ) -> dg.RunRequest | dg.SkipReason:
        current = training_data.current(recipe, tiers.durable_path)
        if current is None:
            return dg.SkipReason(training_data.lacking(recipe, tiers.durable_path))
        tick = context.scheduled_execution_time.isoformat()
        root = trainings(tiers)
        wanted = with_initial_weights(recipe, current, tiers, tracking)
        made = specification(wanted, current, tiers, cause=tick)
        try:
            _check_budget(recipe, made.id, root)
        except NotRenewed as error:
            return dg.SkipReason(str(error))
        store = root.propose(made, terms(wanted, {"schedule": tick}))
        keys.add_partition(context.instance, keys.training_partitions(recipe.name), store.id)
        root.start(store, "retraining", f"scheduled for {tick}")
        return job_watch.training_request(store.read())

    return schedule


def _check_budget(recipe: TrainingRecipe, id: str, root: Trainings) -> None:
    """Raises NotRenewed when the budget is spent; a training that has begun is no further one."""
    if recipe.renewal is None or recipe.renewal.gpu_hours is None:
        return
    known = of_recipe(root, recipe.name)
    if id not in (each.store.id for each in known):
        check_budget(recipe.renewal, known, time.time())
