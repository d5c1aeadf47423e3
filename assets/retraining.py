"""Retraining: the one operation that retrains a recipe without a person, with the cause in the training's id.

The same limits apply to every cause (new data, drift, a loss of quality): the cool-down and the budget of the recipe's
section `renewal`. Only one process at a time checks the limits and starts a training, so that two simultaneous causes
start only one. A cause starts one training, once: a training that a person stopped stays stopped.
"""

import contextlib
import datetime
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from slipway.assets import keys, training_data
from slipway.assets.initial import with_initial_weights
from slipway.assets.training import run_policy, specification
from slipway.recipes.initial import InitSection
from slipway.recipes.renewal import RenewalSection
from slipway.recipes.training import ModelRecipe, TrainingRecipe
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions.promotion import champion
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import naming
from slipway.resources.trainings.accounts import cost_if_any
from slipway.resources.trainings.store import Trainings, TrainingStore, all_trainings
from slipway.trainer.base import lock
from slipway.trainer.base.units import DAY, HOUR
from slipway.trainer.data import contents, snapshots

BUDGET_DAYS = 30
STARTING_SECONDS = 60.0
"""Seconds that a retraining waits for another one to start."""


class NotRenewed(ValueError):
    """The training is not started now; the message has the reason."""


class RenewedBefore(NotRenewed):
    """The cause has already started its training, which is running, has ended, or was stopped."""


def renew(
    recipe: TrainingRecipe, cause: str, origin: Mapping[str, Any], tiers: Tiers, tracking: Tracking,
    instance: dg.DagsterInstance, by: str,
) -> TrainingStore:  # fmt: skip
    """Request a training of the recipe on the current snapshot, once for each cause; the job watch runs it.

    Raises NotRenewed while a limit of the recipe forbids it, RenewedBefore, and ValueError for a recipe that cannot be
    trained.
    """
    assert recipe.renewal is not None
    current = training_data.current(recipe, tiers.durable_path)
    if current is None:
        raise NotRenewed(training_data.missing_snapshots(recipe, tiers.durable_path))
    root = all_trainings(tiers)
    located_recipe = recipe
    if recipe.renewal.from_champion:
        located_recipe = _with_champion(recipe, current, tiers)
    located = with_initial_weights(located_recipe, current, tiers, tracking)
    new_specification = specification(located, current, tiers, cause=cause)
    with _alone(root):
        known = of_recipe(root, recipe.name)
        if new_specification.id in (training.store.id for training in known):
            raise RenewedBefore(f"{new_specification.id} was already started for {cause}")
        _check_limits(recipe.renewal, known)
        store = root.propose(new_specification, run_policy(located, dict(origin)))
        keys.add_partition(instance, keys.training_partitions(recipe.name), store.id)
        root.start(store, by, cause)
    return store


@dataclass(frozen=True)
class BegunTraining:
    """A training, and the time at which it was first requested."""

    store: TrainingStore
    at: float


def of_recipe(root: Trainings, name: str) -> list[BegunTraining]:
    """The requested trainings of a recipe, in the order of their first request, without those that cannot be read."""
    begun = []
    for store in root.stores():
        try:
            facts = store.read()
            if facts.specification.recipe != name:
                continue
            at = naming.first_wanted(facts)
            if at is not None:
                begun.append(BegunTraining(store, at))
        except (ValueError, OSError):
            continue
    return sorted(begun, key=lambda training: training.at)


@contextlib.contextmanager
def _alone(root: Trainings) -> Iterator[None]:
    """Hold the lock of retrainings. Raises NotRenewed if another process holds it for a minute."""
    with contextlib.ExitStack() as locks:
        try:
            locks.enter_context(lock.within(root.root, STARTING_SECONDS))
        except lock.LockHeld as error:
            raise NotRenewed(f"another training is being started: {error}") from None
        yield


def _check_limits(renewal: RenewalSection, known: list[BegunTraining]) -> None:
    """Raises NotRenewed during the cool-down, or if the budget is spent."""
    now = time.time()
    if known and now < known[-1].at + renewal.cool_down_hours * HOUR:
        raise NotRenewed(f"{known[-1].store.id} was started less than {renewal.cool_down_hours:g} h ago")
    check_budget(renewal, known, now)


def check_budget(renewal: RenewalSection, known: list[BegunTraining], now: float) -> None:
    """Raises NotRenewed if these trainings have spent the recipe's budget."""
    if renewal.gpu_hours is None:
        return
    spent = sum(rank_hours(training.store, now - BUDGET_DAYS * DAY) for training in known)
    if spent >= renewal.gpu_hours:
        budget = f"renewal.gpu_hours ({renewal.gpu_hours:g})"
        raise NotRenewed(f"its trainings of the last {BUDGET_DAYS} days used {spent:.1f} rank-hours of {budget}")


def rank_hours(store: TrainingStore, since: float) -> float:
    """The rank-hours of a training since the day of `since`; 0 if it cannot be read."""
    cost = cost_if_any(store.folder)
    first = datetime.datetime.fromtimestamp(since, datetime.UTC).date()
    if not cost:
        return 0.0
    return sum(share.rank_hours for share in cost.shares if share.day >= first)


def _with_champion(recipe: TrainingRecipe, current: str, tiers: Tiers) -> TrainingRecipe:
    """The recipe with the champion's weights, if there is a champion with the snapshot's tokenizer."""
    if not isinstance(recipe, ModelRecipe):
        return recipe
    current_champion = champion(tiers.durable_path, recipe.registered_model)
    tokenizer = contents.tokenizer_digest(snapshots.read(tiers.durable_path, current))
    if current_champion is None or current_champion.tags.get("slipway.tokenizer") != tokenizer:
        return recipe
    return recipe.model_copy(update={"init": InitSection(model=recipe.registered_model)})
