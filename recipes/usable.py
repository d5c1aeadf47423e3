"""Usable and broken recipes: a broken recipe removes its own assets and leaves the others.

A recipe that refers to a broken one (a training to its dataset, a sweep to its training) is broken too, and reports
that one as the reason.
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slipway.recipes import overrides, texts
from slipway.recipes.load import RecipeFile, Recipes, load_all, nearby
from slipway.recipes.problems import InvalidRecipes, Problem
from slipway.recipes.texts import Texts

Product = TypeVar("Product")
Named = tuple[str, str]
"""The folder and the name of a recipe."""


@dataclass(frozen=True)
class BrokenRecipe:
    """A recipe that cannot be used."""

    kind: str
    """Its folder, such as trainings."""
    name: str
    problems: tuple[str, ...]
    """One sentence for each problem: the place, the value found and the value expected."""


@dataclass(frozen=True)
class UsableRecipes:
    """The recipes of a folder that can be used, and those that cannot."""

    recipes: Recipes
    broken: tuple[BrokenRecipe, ...]


def usable(folder: Path, written: Texts | None = None, environ: Mapping[str, str] = os.environ) -> UsableRecipes:
    """The recipes of a folder, from the given texts or from its files, sorted into usable and broken.

    Raises InvalidRecipes for problems that belong to no recipe: a folder without recipes, or an environment variable
    for an unknown recipe.
    """
    if written is None:
        written = texts.read(folder)
    recipes, own = _judged(folder, written, environ)
    problems = {named: [str(fault) for fault in faults] for named, faults in own.items()}
    for named, below in _standing_on(recipes, own).items():
        problems[named] = [f"{below[0]}/{below[1]}.yaml cannot be used, and {named[0]}/{named[1]}.yaml needs it"]
    broken = tuple(BrokenRecipe(kind, name, tuple(texts)) for (kind, name), texts in problems.items())
    return UsableRecipes(_without(recipes, set(problems)), broken)


def usable_with(folder: Path, kind: str, name: str, environ: Mapping[str, str] = os.environ) -> Recipes:
    """The usable recipes of a folder, which include the recipe `name` of a kind (such as "trainings").

    Raises InvalidRecipes with the problems of that recipe and of those that it refers to, and as `usable` does.
    Problems of other recipes are ignored.
    """
    recipes, own = _judged(folder, texts.read(folder), environ)
    needed = {(kind, name)}
    for named, below in reversed(list(_dependants(recipes))):
        if named in needed:
            needed.add(below)
    problems = [problem for named in needed for problem in own.get(named, ())]
    if problems:
        raise InvalidRecipes(problems)
    return _without(recipes, own.keys() | _standing_on(recipes, own).keys())


def _judged(folder: Path, written: Texts, environ: Mapping[str, str]) -> tuple[Recipes, dict[Named, list[Problem]]]:
    """The recipes of a folder, and the problems by recipe. Raises InvalidRecipes for problems of no recipe."""
    recipes, files, problems = load_all(folder, written, environ)
    own: dict[Named, list[Problem]] = {}
    others: list[Problem] = []
    for problem in sorted(problems, key=lambda fault: (fault.location.file, fault.location.line or 0, fault.field)):
        owner = _owner(problem, files)
        if owner is None:
            others.append(problem)
        else:
            own.setdefault(owner, []).append(problem)
    if others:
        raise InvalidRecipes(others)
    return recipes, own


def _owner(problem: Problem, files: list[RecipeFile]) -> Named | None:
    """The recipe whose file or environment variable has the problem."""
    for file in files:
        variable = f"{overrides.PREFIX}{file.kind}__{file.name.replace('-', '_')}__".upper()
        if problem.location.file == nearby(file.path) or problem.location.file.startswith(variable):
            return file.kind, file.name
    return None


def _standing_on(recipes: Recipes, bad: Collection[Named]) -> dict[Named, Named]:
    """The recipes that are valid themselves but refer to a broken one, each with that one."""
    broken_below: dict[Named, Named] = {}
    for named, below in _dependants(recipes):
        if (below in bad or below in broken_below) and named not in bad:
            broken_below.setdefault(named, below)
    return broken_below


def _dependants(recipes: Recipes) -> Iterator[tuple[Named, Named]]:
    """Pairs of a recipe and one that it refers to. Recipes that others refer to come first."""
    for suite in recipes.suites.values():
        yield ("suites", suite.name), ("datasets", suite.dataset)
    for training in recipes.all_trainings.values():
        yield from ((("trainings", training.name), ("datasets", dataset)) for dataset in training.datasets)
    for model in recipes.trainings.values():
        if model.suite:
            yield ("trainings", model.name), ("suites", model.suite)
    for sweep in recipes.sweeps.values():
        yield ("sweeps", sweep.name), ("trainings", sweep.training)


def _without(recipes: Recipes, broken: Collection[Named]) -> Recipes:
    folders = {"scripts": "trainings"}
    by_kind = {
        field.name: {
            name: recipe
            for name, recipe in getattr(recipes, field.name).items()
            if (folders.get(field.name, field.name), name) not in broken
        }
        for field in dataclasses.fields(recipes)
    }
    return Recipes(**by_kind)


def made_of(usable_recipes: UsableRecipes, make: Callable[[UsableRecipes], Product]) -> Product:
    """The product of `make` from usable recipes. A recipe for which `make` fails counts as broken and is left out.

    Raises the error of `make` if no single recipe is the reason.
    """
    try:
        return make(usable_recipes)
    except Exception as error:
        alone = _fault(usable_recipes.recipes, None, make)
        faults = {named: _fault(usable_recipes.recipes, named, make) for named in _all(usable_recipes.recipes)}
        faults = {named: fault for named, fault in faults.items() if fault}
        if alone or not faults:
            raise error
    below = {named for named, needed in _dependants(usable_recipes.recipes) if needed in faults}
    own = {named: fault for named, fault in faults.items() if named not in below}  # the others only refer to one
    problems = {
        named: (f"{named[0]}/{named[1]}.yaml: no definitions can be made of it: {own[named]}",) for named in own
    }
    for named, needed in _standing_on(usable_recipes.recipes, own).items():
        sentence = f"{needed[0]}/{needed[1]}.yaml cannot be used, and {named[0]}/{named[1]}.yaml needs it"
        problems[named] = (sentence,)
    broken = tuple(BrokenRecipe(kind, name, texts) for (kind, name), texts in problems.items())
    return made_of(
        UsableRecipes(_without(usable_recipes.recipes, set(problems)), (*usable_recipes.broken, *broken)), make
    )


def _all(recipes: Recipes) -> list[Named]:
    """The folder and the name of every recipe."""
    folders = {"scripts": "trainings"}
    fields = [field.name for field in dataclasses.fields(recipes)]
    return [(folders.get(field, field), name) for field in fields for name in getattr(recipes, field)]


def _fault(recipes: Recipes, named: Named | None, make: Callable[[UsableRecipes], object]) -> str:
    """The error of `make` for one recipe and those it refers to (or for no recipe at all); empty if it succeeds."""
    needed = {named} if named else set[Named]()
    for upper, below in reversed(list(_dependants(recipes))):
        if upper in needed:
            needed.add(below)
    try:
        make(UsableRecipes(_without(recipes, set(_all(recipes)) - needed), ()))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
