"""Changes to a recipe on a command line, `run.steps=50`: overrides that hold for one command."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from recipes import overrides, yaml_lines
from recipes.load import Recipes, load
from recipes.problems import InvalidRecipes, Place, Problem
from recipes.strict import validate
from recipes.training import TrainingRecipe

AnyTraining = TypeVar("AnyTraining", bound=TrainingRecipe)


def load_with(
    folder: Path, kind: str, name: str, assignments: Sequence[str], environ: Mapping[str, str] = os.environ
) -> Recipes:
    """The recipes of a folder, with the assignments applied to the recipe `name` of a kind (such as "trainings").

    Raises ValueError for an assignment without "=", and InvalidRecipes, which names the assignment at fault.
    """
    written = {_variable(kind, name, assignment): assignment for assignment in assignments}
    values = {variable: assignment.partition("=")[2] for variable, assignment in written.items()}
    try:
        return load(folder, {**environ, **values})
    except InvalidRecipes as invalid:
        raise InvalidRecipes(_as_written(problem, written) for problem in invalid.problems) from None


def applied(recipe: AnyTraining, assignments: Sequence[str]) -> AnyTraining:
    """A recipe that was read before, with assignments applied to it. Raises ValueError for what is not accepted."""
    if not assignments:
        return recipe
    value: dict[str, Any] = recipe.model_dump(mode="json")
    for assignment in assignments:
        field, _, text = assignment.partition("=")
        found, problems = yaml_lines.read(text, assignment)
        if found is None or problems:
            raise InvalidRecipes(problems)
        section, (*above, last) = value, field.split(".")
        for name in above:
            section[name] = section = dict(section.get(name) or {})
        section[last] = found.value
    return validate(type(recipe), value)


def parsed(assignments: Sequence[str]) -> dict[str, Any]:
    """The value of each field, by its dotted name. Raises ValueError for what is no FIELD=VALUE."""
    found: dict[str, Any] = {}
    for assignment in assignments:
        field, equals, text = assignment.partition("=")
        if not equals or not field:
            raise ValueError(f"{assignment}: found no FIELD=VALUE, expected for example run.steps=50")
        document, problems = yaml_lines.read(text, assignment)
        if document is None or problems:
            raise InvalidRecipes(problems)
        found[field] = document.value
    return found


def _variable(kind: str, name: str, assignment: str) -> str:
    """The environment variable with the same meaning as an assignment."""
    field, equals, _ = assignment.partition("=")
    if not equals or not field:
        raise ValueError(f"{assignment}: found no FIELD=VALUE, expected for example run.steps=50")
    parts = [kind, name.replace("-", "_"), *field.split(".")]
    return overrides.PREFIX + "__".join(parts).upper()


def _as_written(problem: Problem, written: Mapping[str, str]) -> Problem:
    """The problem with the assignment as its place, if its place is the variable that stands for the assignment."""
    place = problem.place
    return Problem(
        Place(written.get(place.file, place.file), place.line), problem.field, problem.found, problem.expected
    )
