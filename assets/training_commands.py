"""Commands for trainings, from the UI or the command line: start one, branch one, and change one that exists.

Starting has the same effect as materialising the asset, but no Dagster run waits for the training. Values are
FIELD=VALUE, as in a recipe.
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
    """Request the training of a recipe on the current snapshot of its datasets; a second request finds the same one.

    `cause` distinguishes trainings with the same numbers. `fields` are changes of the recipe for this training alone,
    as FIELD=VALUE, which stay in effect if the recipe changes. The job watch of a running instance shows the training
    in Dagster.

    Raises ValueError if a dataset has no snapshot, and as `with_initial_weights` and `specification` do.
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
    """Start a new training from the parent's checkpoint at `step`, by default the newest, with changed fields.

    `fields` are FIELD=VALUE. Raises ValueError for a missing checkpoint, with the nearest ones, and for fields that are
    unknown or that a continuation cannot change.
    """
    changes = assignments.parsed(fields)
    specification = parent.specification()
    commit = branching.commit_at(parent, step)
    numbers = branching.numbers_at(parent, specification, commit.step)
    _check(changes, numbers, commit.step)
    policy = policy_with(recipe_of(recipes, specification.recipe), parent.run_policy(), changes, fields, numbers)
    store = branching.branch(root, parent, commit, changes, policy, by, name, revision)
    root.start(store, by, f"it continues {parent.id}@{commit.step}" + (f": {name}" if name else ""))
    return store


def recipe_of(recipes: Mapping[str, TrainingRecipe], name: str) -> TrainingRecipe:
    """The recipe of a training. Raises ValueError if it does not exist any more."""
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
    """The run policy of a training: the recipe's, with the changes in `fields` that belong to the policy.

    Raises ValueError for a value that is not accepted, and for a layout that does not fit the changed `numbers`.
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
    """Set FIELD=VALUE in a training; returns each update with its old value and when it takes effect.

    Raises ValueError, before it writes anything, for a field that is unknown or cannot change in a training.
    """
    changes = assignments.parsed(fields)
    facts = store.read()
    specification = facts.specification
    now = updates.sections_now(facts)
    updates.check(changes, now, script=specification.script is not None)
    numbers = {name: now[name] for name in specification.identity_config}
    policy = policy_with(recipe_of(recipes, specification.recipe), facts.run_policy, changes, fields, numbers)
    return updates.update(store, changes, policy, by, why)


def _check(changes: Mapping[str, object], numbers: Mapping[str, object], step: int) -> None:
    try:
        changing.check_continues(changes, numbers, step)
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}") from None
