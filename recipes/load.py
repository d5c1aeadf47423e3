"""Loads all recipes of a folder, with the overrides of the environment, or reports all their problems at once."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.recipes import crossing, overrides, texts, yaml_lines
from slipway.recipes import folder as folder_in_use
from slipway.recipes.dataset import DatasetRecipe
from slipway.recipes.kinds import KINDS, kind_of
from slipway.recipes.problems import InvalidRecipes, Location, Problem, RecipeFault, dotted, format_value
from slipway.recipes.script import ScriptRecipe
from slipway.recipes.strict import RefusedValue, validate
from slipway.recipes.suite import SuiteRecipe
from slipway.recipes.sweep import SweepRecipe
from slipway.recipes.sweep_faults import sweep_faults
from slipway.recipes.texts import Texts, UnreadText
from slipway.recipes.training import ModelRecipe, TrainingRecipe
from slipway.recipes.yaml_lines import Document

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""Names that stay different when asset keys replace their hyphens by underscores."""
LONGEST_NAME = 100
"""The most characters of a recipe's name: files are named after a recipe with additions, in 255 bytes at most."""

FORM = "lower-case letters, digits and single hyphens"


def expected_name(name: str) -> str:
    """The expected form, for a name that no recipe may have; empty for a valid name."""
    if not NAME.fullmatch(name):
        return FORM
    if len(name) <= LONGEST_NAME:
        return ""
    return f"{LONGEST_NAME} characters at most"


@dataclass(frozen=True)
class Recipes:
    """All recipes by name, sorted by name within each kind."""

    datasets: dict[str, DatasetRecipe] = field(default_factory=dict)
    suites: dict[str, SuiteRecipe] = field(default_factory=dict)
    trainings: dict[str, ModelRecipe] = field(default_factory=dict)
    scripts: dict[str, ScriptRecipe] = field(default_factory=dict)
    """The trainings whose loop is a script; they share a folder with the others."""
    sweeps: dict[str, SweepRecipe] = field(default_factory=dict)

    @property
    def all_trainings(self) -> dict[str, TrainingRecipe]:
        """The trainings of built-in models and of scripts."""
        return {**self.trainings, **self.scripts}


@dataclass(frozen=True)
class RecipeFile:
    """One recipe file and its document, which is None if the file cannot be used."""

    kind: str
    path: Path
    document: Document | None

    @property
    def name(self) -> str:
        return self.path.stem


FurtherFaults = Callable[["Recipes"], Iterable[tuple[str, str, RecipeFault]]]
"""Checks that need more than the recipes, such as the fleet: they yield kind and name of a recipe, and its fault."""


def load(
    folder: Path = folder_in_use.BESIDE_THE_CODE,
    environ: Mapping[str, str] = os.environ,
    further: FurtherFaults | None = None,
) -> Recipes:
    """The recipes below `folder`. Raises InvalidRecipes with all problems of all files and variables."""
    recipes, _, problems = load_all(folder, texts.read(folder), environ, further)
    if problems:
        raise InvalidRecipes(problems)
    return recipes


def load_all(
    folder: Path, written: Texts, environ: Mapping[str, str], further: FurtherFaults | None = None
) -> tuple[Recipes, list[RecipeFile], list[Problem]]:
    """The usable recipes of a folder, all of its files, and all problems of files and environment variables.

    `written` has the texts of the files. Relative paths in them start at the folder.
    """
    problems: list[Problem] = []
    files = list(_files(folder, written, problems))
    problems += overrides.apply({(file.kind, file.name): file.document for file in files}, environ)
    recipes = Recipes()
    for file in files:
        if file.document is not None:
            _build(file, file.document, recipes, problems)
    _check_between(files, recipes, problems, further)
    return recipes, files, problems


def recipes_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that SLIPWAY_RECIPES names, or the user's folder that contains the working folder, or the folder
    beside the code."""
    return folder_in_use.selected(environ)


def _files(folder: Path, written: Texts, problems: list[Problem]) -> Iterator[RecipeFile]:
    if not written and not any((folder / kind).is_dir() for kind in KINDS):
        expected = f"a folder with at least one of {', '.join(f'{kind}/' for kind in KINDS)}"
        problems.append(Problem(Location(str(folder)), "", "no recipes", expected))
    for name, text in written.items():
        path = folder / name
        file = nearby(path)
        kind = path.parent.name
        expected = FORM if path.suffix != ".yaml" else expected_name(path.stem)
        if expected:
            expected = f"{expected}, then .yaml"
            problems.append(Problem(Location(file), "", f"the file name {path.name}", expected))
        yield RecipeFile(kind, path, _with_name(_document(text, file, problems), kind, path.stem, problems))


def _document(text: str | UnreadText, file: str, problems: list[Problem]) -> Document | None:
    """The document in a file, or None if the file cannot be read or is not YAML."""
    if isinstance(text, UnreadText):
        problems.append(Problem(Location(file), "", f'"{text.why}"', text.expected))
        return None
    document, problems_of_yaml = yaml_lines.read(texts.encoded(text), file)
    problems += problems_of_yaml
    return document


def nearby(path: Path) -> str:
    """The path relative to the working directory if it is inside, otherwise the path as it is."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _with_name(document: Document | None, kind: str, name: str, problems: list[Problem]) -> Document | None:
    """`document` with its name in place of the header, or None if it does not have the expected format."""
    if document is None:
        return None
    expected = KINDS[kind].FORMAT
    if not isinstance(document.value, dict):
        problems.append(
            _problem(
                document, RecipeFault((), format_value(document.value), f"a recipe that begins slipway: {expected}")
            )
        )
        return None
    first = next(iter(document.value), None)
    header = document.value.pop("slipway", None)
    if header != expected:
        actual = "nothing" if header is None else format_value(header)
        problems.append(_problem(document, RecipeFault(("slipway",), actual, f"{expected}{_hint(header, expected)}")))
        return None
    if first != "slipway":
        problems.append(
            _problem(document, RecipeFault(("slipway",), "this field further down", "it as the first field"))
        )
    if "name" in document.value:
        expected = f"no such field: a recipe has the name of its file, here {name}"
        problems.append(_problem(document, RecipeFault(("name",), format_value(document.value["name"]), expected)))
    document.value["name"] = name
    return document


def _hint(header: Any, expected: str) -> str:
    """The reason why a well-formed header is not the expected one."""
    match = re.fullmatch(r"(dataset|suite|training|sweep)/(\d+)", str(header))
    if match is None:
        return ""
    if match[1] != expected.split("/")[0]:
        return f" in this folder ({match[1]} recipes lie in {match[1]}s/)"
    return " (a newer Slipway reads that version)"


def _build(file: RecipeFile, document: Document, recipes: Recipes, problems: list[Problem]) -> None:
    try:
        recipe = validate(kind_of(file.kind, document.value), document.value, {"folder": file.path.parent})
    except RefusedValue as refused:
        problems += [_problem(document, fault) for fault in refused.faults]
    else:
        getattr(recipes, "scripts" if isinstance(recipe, ScriptRecipe) else file.kind)[file.name] = recipe


def _check_between(
    files: list[RecipeFile], recipes: Recipes, problems: list[Problem], further: FurtherFaults | None
) -> None:
    """Check recipes against one another; a file that cannot be used still counts as present."""
    names = {kind: {file.name for file in files if file.kind == kind} for kind in KINDS}
    documents = {(file.kind, file.name): file.document for file in files}
    faults: list[tuple[str, str, RecipeFault]] = []
    for name, suite in recipes.suites.items():
        found_faults = crossing.suite_faults(suite, names["datasets"], recipes.datasets.get(suite.dataset))
        faults += [("suites", name, fault) for fault in found_faults]
    for name, training in recipes.all_trainings.items():
        found_faults = crossing.training_faults(training, names["datasets"], recipes.datasets)
        faults += [("trainings", name, fault) for fault in found_faults]
        judged = crossing.gate_faults(training, names["suites"], recipes.suites)
        faults += [("trainings", name, fault) for fault in judged]
    faults += [("trainings", name, fault) for name, fault in crossing.model_name_faults(recipes.trainings)]
    for name, sweep in recipes.sweeps.items():
        base = recipes.trainings.get(sweep.training)
        known = names["trainings"] - set(recipes.scripts)
        faults += [("sweeps", name, fault) for fault in sweep_faults(sweep, known, base)]
    faults += further(recipes) if further else ()
    for kind, name, fault in faults:
        document = documents[kind, name]
        assert document is not None
        problems.append(_problem(document, fault))


def _problem(document: Document, fault: RecipeFault) -> Problem:
    return Problem(document.location_of(fault.path), dotted(fault.path), fault.actual, fault.expected)
