"""The subject of a sweep: the search, its data, and the training recipe of each trial.

The sweep's plan, budget and identity follow from its recipe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.assets.sweeps import events
from slipway.assets.sweeps.events import Budgeted, Opened
from slipway.assets.training import run_policy
from slipway.recipes.search_space import SearchSpace
from slipway.recipes.sweep import BUDGET, SweepRecipe
from slipway.recipes.training import ModelRecipe, value_at, with_parameters
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.trainer.base import atomic, digest

PASSED_OVER = {"description", "owner", "placement", *BUDGET}
"""The fields of a recipe that do not decide the sweep's identity: texts, placement and budget."""


@dataclass(frozen=True)
class SearchSubject:
    """A sweep recipe, its training recipe and a snapshot."""

    recipe: SweepRecipe
    training: ModelRecipe
    snapshot: str
    tokenizer: str

    def trial(self, parameters: Mapping[str, Any]) -> ModelRecipe:
        """The training recipe of the trial with these parameters. Raises RefusedValue."""
        return with_parameters(self.recipe.trial_of(self.training), dict(parameters))

    def trial_specification(self, recipe: ModelRecipe) -> Specification:
        """The specification of a trial of this recipe."""
        return Specification(recipe.name, recipe.numbers(), self.snapshot, self.tokenizer)

    def trial_terms(self, recipe: ModelRecipe, sweep: str, trial: int, parameters: Mapping[str, Any]) -> RunPolicy:
        """The run policy of a trial of this recipe, with the origin of its parameters."""
        return run_policy(recipe, {"sweep": sweep, "trial": trial, **parameters}, owner=self.recipe.owner)

    def specification(self) -> dict[str, object]:
        """Everything that decides the sweep's identity, as JSON; its hash is in the sweep's id."""
        return {
            "sweep": sweep_identity(self.recipe),
            "numbers": self.training.numbers(),
            "snapshot": self.snapshot,
            "tokenizer": self.tokenizer,
        }

    def opened(self, sweep: str) -> events.Opened:
        """The first event of the sweep's log, with its identity."""
        known = digest.sha256(atomic.canonical_json(self.specification()))
        return opened_event(self.recipe, self.training, sweep, known)

    def budget(self) -> events.Budgeted:
        """The sweep's budget in the recipe."""
        return sweep_budget(self.recipe)


def sweep_identity(recipe: SweepRecipe) -> dict[str, Any]:
    """The part of the recipe that decides the sweep's identity, as JSON."""
    return recipe.model_dump(mode="json", exclude=PASSED_OVER, exclude_unset=True)


def opened_event(recipe: SweepRecipe, training: ModelRecipe, sweep: str, hash: str) -> Opened:
    """The first event of the sweep's log. Raises RefusedValue if the training refuses the trials' parameters."""
    trial = recipe.trial_of(training)
    space = {name: domain.plain() for name, domain in recipe.space.items()}
    return Opened(
        sweep=sweep,
        recipe=hash,
        space=space,
        constraints=recipe.constraints,
        fixed=fixed_values(recipe, trial),
        written=written_parameters(recipe, trial),
        sampler=recipe.sampler,
        seed=recipe.seed,
        steps=trial.run.steps,
        scheduler=recipe.scheduler.model_dump(mode="json"),
    )


def sweep_budget(recipe: SweepRecipe) -> Budgeted:
    """The sweep's budget in its recipe."""
    return Budgeted(
        trials=recipe.trials,
        parallel=recipe.parallel,
        retries=recipe.limits.retries,
        failed_trials=recipe.limits.failed_trials,
        goal=None if recipe.goal is None else recipe.goal.at_most,
    )


def fixed_values(recipe: SweepRecipe, trial: ModelRecipe) -> dict[str, Any]:
    """The values of fields that constraints and conditions name but no trial draws."""
    searched = SearchSpace.of({name: domain.plain() for name, domain in recipe.space.items()}, recipe.constraints)
    named = {name for constraint in searched.constraints for name in constraint.names}
    named |= {name for domain in recipe.space.values() for name in domain.when}
    values = {name: value_at(trial, name) for name in named - recipe.space.keys()}
    return {name: value for name, value in sorted(values.items()) if value is not None}


def written_parameters(recipe: SweepRecipe, trial: ModelRecipe) -> Mapping[str, Any]:
    """The parameters of trial 0: the recipe's values of the searched fields that exist there."""
    space = SearchSpace(recipe.space, fixed=fixed_values(recipe, trial))
    values = dict[str, Any]()
    for name in space.order:
        if space.exists(name, values):
            values[name] = _as_chosen(value_at(trial, name), recipe.space[name].choice or ())
    return {name: values[name] for name in recipe.space if name in values}


def _as_chosen(value: Any, choices: Sequence[Any]) -> Any:
    """A recipe's section in the form of the space: the matching choice, or else its fields that the choices name. Any
    other value is unchanged."""
    sections = [choice for choice in choices if isinstance(choice, dict)]
    if not isinstance(value, dict) or not sections:
        return value
    named = {name: value.get(name) for choice in sections for name in choice}
    return next((section for section in sections if {**value, **section} == value), named)
