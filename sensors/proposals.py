"""Proposals: what could be trained now, as partitions that a person may materialise.

Should be: each training recipe has a partition for the current snapshot of its dataset.
Is: the partitions that Dagster has.
Follows: a training that is proposed and not wanted, and a partition for it.
"""

import dagster as dg

from slipway.assets import keys, subjects, training_data
from slipway.assets.initial import with_initial_weights
from slipway.assets.training import run_policy, specification
from slipway.recipes.training import TrainingRecipe
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import all_trainings
from slipway.sensors.support.tick import Tick

NAME = "offers"


def proposals(recipes: dict[str, TrainingRecipe]) -> dg.SensorDefinition:
    """The sensor over all training recipes."""

    @dg.sensor(
        name=NAME,
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Offers each training recipe on the current snapshot as a partition to materialise.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, tracking: Tracking) -> dg.SensorResult:
        tick = Tick(context, NAME)
        tick.for_each(
            recipes.values(),
            lambda recipe: subjects.offer(recipe.name),
            lambda recipe: _propose(tick, recipe, tiers, tracking),
        )
        return tick.result()

    return sensor


def _propose(tick: Tick, recipe: TrainingRecipe, tiers: Tiers, tracking: Tracking) -> None:
    """Offer one recipe. Raises ValueError for a recipe that cannot be trained on the current snapshot."""
    current = training_data.current(recipe, tiers.durable_path)
    if current is None:
        return
    offered = with_initial_weights(recipe, current, tiers, tracking)
    proposed = specification(offered, current, tiers)
    partitions = keys.training_partitions(recipe.name)
    if not tick.instance.has_dynamic_partition(partitions.name or "", proposed.id):
        all_trainings(tiers).propose(proposed, run_policy(offered))
        tick.partitions.append(partitions.build_add_request([proposed.id]))
