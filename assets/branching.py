"""Branching from the UI and by hand: FIELD=VALUE as a recipe has them, and the terms that follow from the recipe."""

import dataclasses
from collections.abc import Mapping, Sequence

from slipway.assets.training import TERMS, terms_now
from slipway.recipes import assignments
from slipway.recipes.training import TrainingRecipe
from slipway.resources.trainings import branching
from slipway.resources.trainings.records import Terms
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import changing


def branch(
    root: Trainings,
    parent: TrainingStore,
    step: int | None,
    fields: Sequence[str],
    recipes: Mapping[str, TrainingRecipe],
    by: str,
    name: str = "",
    revision: str = "",
) -> TrainingStore:
    """Propose the training that continues the parent's checkpoint of `step`, and want it to run.

    `fields` are FIELD=VALUE; without a step the newest checkpoint is continued. Raises ValueError for a checkpoint that
    is not there, with the nearest ones, and for fields that are unknown or that no continuation can change.
    """
    changes = assignments.parsed(fields)
    specification, commit = parent.specification(), branching.commit_at(parent, step)
    numbers = branching.numbers_at(parent, specification, commit.step)
    _check(changes, numbers, commit.step)
    terms = terms_with(recipe_of(recipes, specification.recipe), parent.terms(), changes, fields, numbers)
    store = branching.branch(root, parent, commit, changes, terms, by, name, revision)
    root.start(store, by, f"it continues {parent.id}@{commit.step}" + (f": {name}" if name else ""))
    return store


def _check(changes: Mapping[str, object], numbers: Mapping[str, object], step: int) -> None:
    try:
        changing.check_continues(changes, numbers, step)
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}") from None


def recipe_of(recipes: Mapping[str, TrainingRecipe], name: str) -> TrainingRecipe:
    """The recipe of a training. Raises ValueError for one that is gone."""
    if name not in recipes:
        raise ValueError(f"recipe {name}: found no such file in trainings/, expected the training's own recipe")
    return recipes[name]


def terms_with(
    recipe: TrainingRecipe,
    held: Terms,
    changes: Mapping[str, object],
    fields: Sequence[str],
    numbers: Mapping[str, object],
) -> Terms:
    """The terms of a training whose other terms follow the recipe, with those of `fields` that are terms set so.

    Raises ValueError for a value that is not accepted, and for a layout that does not fit `numbers` as changed.
    """
    own = [each for each in fields if each.split(".")[0] in TERMS]
    names = {each.partition("=")[0] for each in own}
    kept = [each for each in held.fields if each.partition("=")[0] not in names]
    own_numbers = {name: value for name, value in changes.items() if name.split(".")[0] not in TERMS}
    try:
        now = changing.with_fields(numbers, own_numbers)
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}") from None
    return terms_now(recipe, dataclasses.replace(held, fields=[*kept, *own]), now)
