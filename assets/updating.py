"""Updating from the UI and by hand: FIELD=VALUE as a recipe has them, for a training that exists."""

from collections.abc import Mapping, Sequence

from slipway.assets.branching import recipe_of, terms_with
from slipway.recipes import assignments
from slipway.recipes.training import TrainingRecipe
from slipway.resources.trainings import updating
from slipway.resources.trainings.store import TrainingStore
from slipway.resources.trainings.updating import FieldUpdate


def update(
    store: TrainingStore, fields: Sequence[str], recipes: Mapping[str, TrainingRecipe], by: str, why: str
) -> list[FieldUpdate]:
    """Set FIELD=VALUE in a training; each of them with its value before and when it takes effect.

    Raises ValueError, before anything is written, for a field that is unknown or that a training keeps.
    """
    changes, facts = assignments.parsed(fields), store.read()
    specification, now = facts.specification, updating.sections_now(facts)
    updating.check(changes, now, script=specification.script is not None)
    numbers = {name: now[name] for name in specification.numbers}
    terms = terms_with(recipe_of(recipes, specification.recipe), facts.terms, changes, fields, numbers)
    return updating.update(store, changes, terms, by, why)
