"""Retraining: on a recipe's schedule, the training runs anew on the snapshot of the day.

The tick is the training's cause key, so that each tick is a training of its own, and a tick that is evaluated
twice is one. Also here: the sensor that offers what could be trained now, for a person to materialise.
"""

import dagster as dg

from assets import keys
from assets.datasets import snapshot
from assets.initial import settled
from assets.training import specification, terms
from recipes.schema import TrainingRecipe
from resources.compute import trainings
from resources.tiers import Tiers
from resources.tracking import Tracking
from sensors import job_watch


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
        current = snapshot.current(tiers.durable_path, recipe.dataset)
        if current is None:
            return dg.SkipReason(f"dataset {recipe.dataset} has no snapshot yet")
        tick = context.scheduled_execution_time.isoformat()
        known = trainings(tiers)
        wanted = settled(recipe, current, tiers, tracking)
        store = known.propose(specification(wanted, current, tiers, cause=tick), terms(wanted, {"schedule": tick}))
        keys.add_partition(context.instance, keys.training_partitions(recipe.name), store.id)
        known.start(store, "retraining", f"scheduled for {tick}")
        return job_watch.training_request(store)

    return schedule


def offers(recipes: dict[str, TrainingRecipe]) -> dg.SensorDefinition:
    """The sensor that gives each training recipe a partition for the current snapshot."""

    @dg.sensor(
        name="offers",
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Offers each training recipe on the current snapshot as a partition to materialise.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, tracking: Tracking) -> dg.SensorResult:
        requests = []
        for recipe in recipes.values():
            current = snapshot.current(tiers.durable_path, recipe.dataset)
            if current is None:
                continue
            try:
                offered = settled(recipe, current, tiers, tracking)
                proposed = specification(offered, current, tiers)
            except ValueError as error:
                context.log.error(f"{error}; it is not offered")
                continue
            partitions = keys.training_partitions(recipe.name)
            if not context.instance.has_dynamic_partition(partitions.name or "", proposed.id):
                trainings(tiers).propose(proposed, terms(offered))
                requests.append(partitions.build_add_request([proposed.id]))
        return dg.SensorResult(dynamic_partitions_requests=requests)

    return sensor
