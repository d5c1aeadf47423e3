"""Reading all recipes of a folder at once, with the overrides of the environment, or every problem they have."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipes import crossing, overrides, yaml_lines
from recipes.dataset import Dataset
from recipes.problems import Fault, InvalidRecipes, Place, Problem, dotted, shown
from recipes.schema import KINDS, Script, Sweep, Training, TrainingRecipe, kind_of
from recipes.strict import Refused, validate
from recipes.yaml_lines import Document

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""Replacing the hyphens by underscores, as asset keys do, keeps such names apart."""


@dataclass(frozen=True)
class Recipes:
    """All recipes by name, each kind in the order of the names."""

    datasets: dict[str, Dataset] = field(default_factory=dict)
    trainings: dict[str, Training] = field(default_factory=dict)
    scripts: dict[str, Script] = field(default_factory=dict)
    """Trainings too, in the same folder."""
    sweeps: dict[str, Sweep] = field(default_factory=dict)

    @property
    def all_trainings(self) -> dict[str, TrainingRecipe]:
        """Those of our models and those of scripts."""
        return {**self.trainings, **self.scripts}


@dataclass(frozen=True)
class File:
    """One file of a kind: its document, or None when it cannot be used."""

    kind: str
    path: Path
    document: Document | None

    @property
    def name(self) -> str:
        return self.path.stem


def load(folder: Path = Path(__file__).parent, environ: Mapping[str, str] = os.environ) -> Recipes:
    """The recipes under `folder`. Raises InvalidRecipes with all the problems of all files and variables."""
    problems: list[Problem] = []
    files = list(_files(folder, problems))
    problems += overrides.apply({(file.kind, file.name): file.document for file in files}, environ)
    recipes = Recipes()
    for file in files:
        if file.document is not None:
            _build(file, file.document, recipes, problems)
    _cross(files, recipes, problems)
    if problems:
        raise InvalidRecipes(problems)
    return recipes


def recipes_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that SLIPWAY_RECIPES names, by default the one beside the code."""
    return Path(environ.get("SLIPWAY_RECIPES") or Path(__file__).parent)


def _files(folder: Path, problems: list[Problem]) -> Iterator[File]:
    if not any((folder / kind).is_dir() for kind in KINDS):
        wanted = f"a folder with at least one of {', '.join(f'{kind}/' for kind in KINDS)}"
        problems.append(Problem(Place(str(folder)), "", "no recipes", wanted))
    for kind in KINDS:
        for path in sorted((folder / kind).glob("[!.]*.y*ml")):
            file = _nearby(path)
            if path.suffix != ".yaml" or not NAME.fullmatch(path.stem):
                wanted = "lower-case letters, digits and single hyphens, then .yaml"
                problems.append(Problem(Place(file), "", f"the file name {path.name}", wanted))
            document, found = yaml_lines.read(path.read_bytes(), file)
            problems += found
            yield File(kind, path, _headed(document, kind, path.stem, problems))


def _nearby(path: Path) -> str:
    """The path as a person would write it: relative to the working directory if it is below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _headed(document: Document | None, kind: str, name: str, problems: list[Problem]) -> Document | None:
    """`document` with its name in the place of its header, or None when it is not of the format we read."""
    if document is None:
        return None
    wanted = KINDS[kind].FORMAT
    if not isinstance(document.value, dict):
        problems.append(_problem(document, Fault((), shown(document.value), f"a recipe that begins slipway: {wanted}")))
        return None
    first, header = next(iter(document.value), None), document.value.pop("slipway", None)
    if header != wanted:
        found = "nothing" if header is None else shown(header)
        problems.append(_problem(document, Fault(("slipway",), found, f"{wanted}{_hint(header, wanted)}")))
        return None
    if first != "slipway":
        problems.append(_problem(document, Fault(("slipway",), "this field further down", "it as the first")))
    if "name" in document.value:
        wanted = f"none: a recipe is named by its file, here {name}"
        problems.append(_problem(document, Fault(("name",), shown(document.value["name"]), wanted)))
    document.value["name"] = name
    return document


def _hint(header: Any, wanted: str) -> str:
    """Why a well-formed header is not the wanted one."""
    match = re.fullmatch(r"(dataset|training|sweep)/(\d+)", str(header))
    if match is None:
        return ""
    if match[1] != wanted.split("/")[0]:
        return f" in this folder ({match[1]} recipes lie in {match[1]}s/)"
    return " (a newer Slipway reads that version)"


def _build(file: File, document: Document, recipes: Recipes, problems: list[Problem]) -> None:
    try:
        recipe = validate(kind_of(file.kind, document.value), document.value, {"folder": file.path.parent})
    except Refused as refused:
        problems += [_problem(document, fault) for fault in refused.faults]
    else:
        getattr(recipes, "scripts" if isinstance(recipe, Script) else file.kind)[file.name] = recipe


def _cross(files: list[File], recipes: Recipes, problems: list[Problem]) -> None:
    """Check recipes against one another; a file that is not usable still counts as there."""
    names = {kind: {file.name for file in files if file.kind == kind} for kind in KINDS}
    documents = {(file.kind, file.name): file.document for file in files}
    faults: list[tuple[str, str, Fault]] = []
    for name, training in recipes.all_trainings.items():
        dataset = recipes.datasets.get(training.dataset)
        found = crossing.training_faults(training, names["datasets"], dataset)
        faults += [("trainings", name, each) for each in found]
    for name, sweep in recipes.sweeps.items():
        base = recipes.trainings.get(sweep.training)
        known = names["trainings"] - set(recipes.scripts)
        faults += [("sweeps", name, each) for each in crossing.sweep_faults(sweep, known, base)]
    for kind, name, fault in faults:
        document = documents[kind, name]
        assert document is not None
        problems.append(_problem(document, fault))


def _problem(document: Document, fault: Fault) -> Problem:
    return Problem(document.place(fault.path), dotted(fault.path), fault.found, fault.expected)
