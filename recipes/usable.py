"""Recipes that can be used, beside those that cannot: a bad recipe takes out its own lane, and leaves the others.

A recipe that stands on a bad one (a training on its dataset, a sweep on its training) cannot be used either, and says
so.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from recipes import overrides, texts
from recipes.load import RecipeFile, Recipes, load_all, nearby
from recipes.problems import InvalidRecipes, Problem
from recipes.texts import Texts

Named = tuple[str, str]
"""The folder and the name of a recipe."""


@dataclass(frozen=True)
class BrokenRecipe:
    """A recipe that cannot be used."""

    kind: str
    """Its folder, such as trainings."""
    name: str
    problems: tuple[str, ...]
    """A sentence each: where, what was found, what is expected."""


@dataclass(frozen=True)
class UsableRecipes:
    """What of a folder can be used, and what cannot."""

    recipes: Recipes
    broken: tuple[BrokenRecipe, ...]


def usable(folder: Path, written: Texts | None = None, environ: Mapping[str, str] = os.environ) -> UsableRecipes:
    """The recipes of a folder, or of these texts of its files, each by itself.

    Raises InvalidRecipes for problems that are no recipe's: a folder without recipes, a variable that names none.
    """
    recipes, files, problems = load_all(folder, texts.read(folder) if written is None else written, environ)
    problems_of: dict[Named, list[str]] = {}
    nobodys: list[Problem] = []
    for problem in sorted(problems, key=lambda each: (each.place.file, each.place.line or 0, each.field)):
        owner = _owner(problem, files)
        if owner is None:
            nobodys.append(problem)
        else:
            problems_of.setdefault(owner, []).append(str(problem))
    if nobodys:
        raise InvalidRecipes(nobodys)
    for named, below in _dependants(recipes):
        if below in problems_of and named not in problems_of:
            problems_of[named] = [f"{below[0]}/{below[1]}.yaml cannot be used, and {named[0]}/{named[1]}.yaml needs it"]
    broken = tuple(BrokenRecipe(kind, name, tuple(found)) for (kind, name), found in problems_of.items())
    return UsableRecipes(_without(recipes, set(problems_of)), broken)


def _owner(problem: Problem, files: list[RecipeFile]) -> Named | None:
    """The recipe whose file, or whose variable, the problem is in."""
    for file in files:
        variable = f"{overrides.PREFIX}{file.kind}__{file.name.replace('-', '_')}__".upper()
        if problem.place.file == nearby(file.path) or problem.place.file.startswith(variable):
            return file.kind, file.name
    return None


def _dependants(recipes: Recipes) -> Iterator[tuple[Named, Named]]:
    """Each recipe with one that it stands on, those that others stand on first."""
    for suite in recipes.suites.values():
        yield ("suites", suite.name), ("datasets", suite.dataset)
    for training in recipes.all_trainings.values():
        yield from ((("trainings", training.name), ("datasets", each)) for each in training.datasets)
    for model in recipes.trainings.values():
        if model.suite:
            yield ("trainings", model.name), ("suites", model.suite)
    for sweep in recipes.sweeps.values():
        yield ("sweeps", sweep.name), ("trainings", sweep.training)


def _without(recipes: Recipes, broken: set[Named]) -> Recipes:
    folders = {"scripts": "trainings"}
    kept = {
        field.name: {
            name: recipe
            for name, recipe in getattr(recipes, field.name).items()
            if (folders.get(field.name, field.name), name) not in broken
        }
        for field in dataclasses.fields(recipes)
    }
    return Recipes(**kept)
