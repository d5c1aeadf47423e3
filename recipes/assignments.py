"""Assignments on a command line, such as `run.steps=50`: they override fields of a recipe for one command."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from slipway.recipes import overrides, yaml_lines
from slipway.recipes.load import Recipes
from slipway.recipes.problems import InvalidRecipes, Location, Problem
from slipway.recipes.strict import validate
from slipway.recipes.training import TrainingRecipe
from slipway.recipes.usable import usable_with

AnyTraining = TypeVar("AnyTraining", bound=TrainingRecipe)


def load_with(folder: Path, kind: str, name: str, assignments: Sequence[str]) -> Recipes:
    """The usable recipes of a folder, with the assignments applied to the recipe `name` of a kind, such as "trainings".

    Raises ValueError for text that is not FIELD=VALUE and for a field that is assigned twice. Raises InvalidRecipes if
    that recipe, or one that it refers to, is invalid; the problem then names the assignment at fault.
    """
    text_by_field = _fields(assignments)
    written = {_variable(kind, name, field): f"{field}={text}" for field, text in text_by_field.items()}
    values = {_variable(kind, name, field): text for field, text in text_by_field.items()}
    try:
        return usable_with(folder, kind, name, {**os.environ, **values})
    except InvalidRecipes as invalid:
        raise InvalidRecipes(_as_written(problem, written) for problem in invalid.problems) from None


def applied(recipe: AnyTraining, assignments: Sequence[str]) -> AnyTraining:
    """A copy of a validated recipe with the assignments applied. Raises ValueError for a value that is not accepted."""
    if not assignments:
        return recipe
    value: dict[str, Any] = recipe.model_dump(mode="json")
    for field, new in parsed(assignments).items():
        section, (*above, last) = value, field.split(".")
        for name in above:
            section[name] = section = dict(section.get(name) or {})
        section[last] = new
    return validate(type(recipe), value)


def parsed(assignments: Sequence[str]) -> dict[str, Any]:
    """The value of each field, by its dotted name.

    Raises ValueError for text that is not FIELD=VALUE, a field that is assigned twice, and a value that is not YAML.
    """
    values: dict[str, Any] = {}
    for field, text in _fields(assignments).items():
        document, problems = yaml_lines.read(text, f"{field}={text}")
        if document is None or problems:
            raise InvalidRecipes(problems)
        values[field] = document.value
    return values


def _fields(assignments: Sequence[str]) -> dict[str, str]:
    """The text of each field's value."""
    texts: dict[str, str] = {}
    for assignment in assignments:
        field, equals, text = assignment.partition("=")
        if not equals or not field:
            raise ValueError(f"{assignment}: found no FIELD=VALUE, expected for example run.steps=50")
        if field in texts:
            raise ValueError(f"{field}: found two values, {texts[field]} and {text}, expected one")
        texts[field] = text
    return texts


def _variable(kind: str, name: str, field: str) -> str:
    """The environment variable that overrides the same field."""
    return overrides.PREFIX + "__".join([kind, name.replace("-", "_"), *field.split(".")]).upper()


def _as_written(problem: Problem, written: Mapping[str, str]) -> Problem:
    """The problem, located at the assignment instead of the environment variable that stands for it."""
    location = problem.location
    return Problem(
        Location(written.get(location.file, location.file), location.line),
        problem.field,
        problem.actual,
        problem.expected,
    )
