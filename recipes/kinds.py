"""The kinds of recipes, by the folder they lie in."""

from typing import Any

from slipway.recipes.dataset import DatasetRecipe
from slipway.recipes.script import ScriptRecipe
from slipway.recipes.suite import SuiteRecipe
from slipway.recipes.sweep import SweepRecipe
from slipway.recipes.training import ModelRecipe

KINDS: dict[str, type[DatasetRecipe] | type[SuiteRecipe] | type[ModelRecipe] | type[SweepRecipe]] = {
    "datasets": DatasetRecipe,
    "suites": SuiteRecipe,
    "trainings": ModelRecipe,
    "sweeps": SweepRecipe,
}
"""The kinds of recipes, by the folder they lie in."""


def kind_of(
    folder: str, value: dict[str, Any]
) -> type[DatasetRecipe] | type[SuiteRecipe] | type[ModelRecipe] | type[ScriptRecipe] | type[SweepRecipe]:
    """The kind of recipe that `value` is in `folder`: a training with a command is a script's."""
    if folder == "trainings" and "command" in value:
        return ScriptRecipe
    return KINDS[folder]
