"""Starting a training by hand: what materialising its asset does, without a Dagster run that waits for it."""

from collections.abc import Sequence

from slipway.assets import training_data
from slipway.assets.initial import with_initial_weights
from slipway.assets.training import specification, terms
from slipway.recipes.training import TrainingRecipe
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.roots import trainings
from slipway.resources.trainings.store import TrainingStore


def start(
    recipe: TrainingRecipe, tiers: Tiers, tracking: Tracking, by: str, cause: str = "", fields: Sequence[str] = ()
) -> TrainingStore:
    """Want the training that a recipe means on the current snapshot of its datasets; asking twice finds the same one.

    `cause` distinguishes trainings of the same numbers; `fields` are those of the recipe that are set otherwise for
    this training alone, as FIELD=VALUE, and hold when its recipe changes. The job watch of a running instance shows it
    in Dagster.

    Raises ValueError when a dataset has no snapshot, and as `with_initial_weights` and `specification` do.
    """
    current = training_data.current(recipe, tiers.durable_path)
    if current is None:
        raise ValueError(f"training {recipe.name}: {training_data.lacking(recipe, tiers.durable_path)}")
    wanted = with_initial_weights(recipe, current, tiers, tracking)
    root = trainings(tiers)
    store = root.propose(specification(wanted, current, tiers, cause), terms(wanted, fields=fields), by=by)
    root.start(store, by, cause or "started by hand")
    return store
