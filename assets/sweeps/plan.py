"""The plan and the budget of a sweep, as its recipe has them, and what of a recipe decides which sweep it is."""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.assets.sweeps.events import Budgeted, Opened
from slipway.recipes.search_space import SearchSpace
from slipway.recipes.sweep import BUDGET, SweepRecipe
from slipway.recipes.training import ModelRecipe, value_at

PASSED_OVER = {"description", "owner", "placement", *BUDGET}
"""What does not decide which sweep a recipe is: words, where trials run, and what the sweep may spend."""


def identity(recipe: SweepRecipe) -> dict[str, Any]:
    """What of the recipe decides which sweep it is, as JSON."""
    return recipe.model_dump(mode="json", exclude=PASSED_OVER, exclude_unset=True)


def opened(recipe: SweepRecipe, training: ModelRecipe, sweep: str, hash: str) -> Opened:
    """The first event of the sweep's log. Raises RefusedValue when the training refuses the trials' parameters."""
    trial = recipe.trial_of(training)
    space = {name: domain.plain() for name, domain in recipe.space.items()}
    return Opened(
        sweep=sweep,
        recipe=hash,
        space=space,
        constraints=recipe.constraints,
        fixed=fixed(recipe, trial),
        written=written(recipe, trial),
        sampler=recipe.sampler,
        seed=recipe.seed,
        steps=trial.run.steps,
        scheduler=recipe.scheduler.model_dump(mode="json"),
    )


def budget(recipe: SweepRecipe) -> Budgeted:
    """What the recipe lets the sweep spend."""
    return Budgeted(
        trials=recipe.trials,
        parallel=recipe.parallel,
        retries=recipe.limits.retries,
        failed_trials=recipe.limits.failed_trials,
        goal=None if recipe.goal is None else recipe.goal.at_most,
    )


def fixed(recipe: SweepRecipe, trial: ModelRecipe) -> dict[str, Any]:
    """The values of the fields that constraints and conditions name and that no trial draws."""
    searched = SearchSpace.of({name: domain.plain() for name, domain in recipe.space.items()}, recipe.constraints)
    named = {name for each in searched.constraints for name in each.names}
    named |= {name for domain in recipe.space.values() for name in domain.when}
    values = {name: value_at(trial, name) for name in named - recipe.space.keys()}
    return {name: value for name, value in sorted(values.items()) if value is not None}


def written(recipe: SweepRecipe, trial: ModelRecipe) -> Mapping[str, Any]:
    """The parameters of trial 0: what the recipe has in the fields that are searched, as far as they exist there."""
    space, values = SearchSpace(recipe.space, fixed=fixed(recipe, trial)), dict[str, Any]()
    for name in space.order:
        if space.exists(name, values):
            values[name] = _as_chosen(value_at(trial, name), recipe.space[name].choice or ())
    return {name: values[name] for name in recipe.space if name in values}


def _as_chosen(value: Any, choices: Sequence[Any]) -> Any:
    """A section that a recipe has as the space writes it: the choice that it agrees with, else its fields that choices
    name. Any other value as it is."""
    sections = [choice for choice in choices if isinstance(choice, dict)]
    if not isinstance(value, dict) or not sections:
        return value
    named = {name: value.get(name) for choice in sections for name in choice}
    return next((each for each in sections if {**value, **each} == value), named)
