"""What a person asks of trainings, in the UI or by hand: start one, branch one, and change one that exists.

Starting does what materialising the asset does, without a Dagster run that waits for it. Values are FIELD=VALUE, as a
recipe has them.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from slipway.assets import training_data
from slipway.assets.initial import with_initial_weights
from slipway.assets.training import POLICY_SECTIONS, current_policy, run_policy, specification
from slipway.recipes import assignments
from slipway.recipes.training import TrainingRecipe
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import branching, updates
from slipway.resources.trainings.records import RunPolicy
from slipway.resources.trainings.store import Trainings, TrainingStore, all_trainings
from slipway.resources.trainings.updates import FieldUpdate
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import changing


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
        raise ValueError(f"training {recipe.name}: {training_data.missing_snapshots(recipe, tiers.durable_path)}")
    located = with_initial_weights(recipe, current, tiers, tracking)
    root = all_trainings(tiers)
    store = root.propose(specification(located, current, tiers, cause), run_policy(located, fields=fields), by=by)
    root.start(store, by, cause or "started by hand")
    return store


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
    policy = policy_with(recipe_of(recipes, specification.recipe), parent.run_policy(), changes, fields, numbers)
    store = branching.branch(root, parent, commit, changes, policy, by, name, revision)
    root.start(store, by, f"it continues {parent.id}@{commit.step}" + (f": {name}" if name else ""))
    return store


def recipe_of(recipes: Mapping[str, TrainingRecipe], name: str) -> TrainingRecipe:
    """The recipe of a training. Raises ValueError for one that is gone."""
    if name not in recipes:
        raise ValueError(f"recipe {name}: found no such file in trainings/, expected the training's own recipe")
    return recipes[name]


def policy_with(
    recipe: TrainingRecipe,
    policy: RunPolicy,
    changes: Mapping[str, object],
    fields: Sequence[str],
    numbers: Mapping[str, object],
) -> RunPolicy:
    """The terms of a training whose other terms follow the recipe, with those of `fields` that are terms set so.

    Raises ValueError for a value that is not accepted, and for a layout that does not fit `numbers` as changed.
    """
    own = [field for field in fields if field.split(".")[0] in POLICY_SECTIONS]
    names = {assignment.partition("=")[0] for assignment in own}
    other_fields = [field for field in policy.fields if field.partition("=")[0] not in names]
    own_numbers = {name: value for name, value in changes.items() if name.split(".")[0] not in POLICY_SECTIONS}
    try:
        now = changing.with_fields(numbers, own_numbers)
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}") from None
    return current_policy(recipe, dataclasses.replace(policy, fields=[*other_fields, *own]), now)


def update(
    store: TrainingStore, fields: Sequence[str], recipes: Mapping[str, TrainingRecipe], by: str, why: str
) -> list[FieldUpdate]:
    """Set FIELD=VALUE in a training; each of them with its value before and when it takes effect.

    Raises ValueError, before anything is written, for a field that is unknown or that a training keeps.
    """
    changes, facts = assignments.parsed(fields), store.read()
    specification, now = facts.specification, updates.sections_now(facts)
    updates.check(changes, now, script=specification.script is not None)
    numbers = {name: now[name] for name in specification.identity_config}
    policy = policy_with(recipe_of(recipes, specification.recipe), facts.run_policy, changes, fields, numbers)
    return updates.update(store, changes, policy, by, why)


def _check(changes: Mapping[str, object], numbers: Mapping[str, object], step: int) -> None:
    try:
        changing.check_continues(changes, numbers, step)
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}") from None
