"""Every field of every kind of recipe with values that nobody meant: accepted, or refused in plain words."""

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.recipes import crossing, texts, yaml_lines
from slipway.recipes.described import fields
from slipway.recipes.kinds import KINDS
from slipway.recipes.load import LONGEST_NAME
from slipway.recipes.parts import Recipe
from slipway.recipes.problems import dotted
from slipway.recipes.script import ScriptRecipe
from slipway.recipes.strict import RefusedValue, validate
from slipway.recipes.training import MOST_NODES, ModelRecipe
from tests.recipes.conftest import DATASET, SAMPLES, TRAINING, Folder

pytestmark = pytest.mark.pure

WRONG: list[Any] = [
    *(None, True, -1, 0, 0.5, 10**9, 10**30, 1e308),
    *("", "x", "a" * 400, ["python", "a" * 400], "../x", "\0", "/\0", "\ud800", "[", "a\nb"),
    *([], [None], [[]], {}, {"": 1}, {"\ud800": 1}, {"kind": []}, {"a b": {"c": [1]}}),
]
SUITE = {"slipway": "suite/1", "description": "Questions", "dataset": "python-stdlib"}
SCRIPT = {
    **{"slipway": "training/1", "description": "A script", "owner": "team:a", "dataset": "python-stdlib"},
    **{"code": "code", "command": ["python", "main.py"], "recovery": {"no_progress_seconds": 60}},
    "placement": {"nodes": {"min": 1, "max": 1}, "ranks_per_node": 1},
}
FOREIGN = ("Input should", "String should", "Value error", "Unable to", "embedded null", "codec", "hex escape")
"""How others begin their sentences, which say what is wrong and not what is expected."""


def _documents() -> dict[str, tuple[type[Recipe], dict[str, Any]]]:
    documents: dict[str, tuple[type[Recipe], dict[str, Any]]] = {"script": (ScriptRecipe, SCRIPT)}
    for name, text in texts.read(SAMPLES).items():
        document, _ = yaml_lines.read(str(text), name)
        assert document is not None
        documents[name.split("/")[0]] = (KINDS[name.split("/")[0]], document.value)
    return {**documents, "suites": (KINDS["suites"], SUITE)}


def _paths(section: type, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in fields(section):
        yield (*above, field.name)
        for inner in field.sections if len(above) < 6 else ():
            yield from _paths(inner, (*above, field.name))


def _with(document: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = {**copy.deepcopy(document), "name": "x"}
    changed.pop("slipway")
    section = changed
    for step in path[:-1]:
        if not isinstance(section.get(step), dict):
            section[step] = {}
        section = section[step]
    section[path[-1]] = value
    return changed


@pytest.mark.parametrize("kind", ["datasets", "suites", "trainings", "script", "sweeps"])
def test_a_value_that_nobody_meant_is_accepted_or_refused_in_plain_words(kind: str, tmp_path: Path):
    recipe, document = _documents()[kind]
    for path in sorted(set(_paths(recipe))):
        for value in WRONG:
            try:
                read = validate(recipe, _with(document, path, value), {"folder": tmp_path})
            except RefusedValue as refused:
                for fault in refused.faults:
                    assert not any(phrase in fault.expected for phrase in FOREIGN), (dotted(path), str(fault))
                    assert str(fault).isprintable(), str(fault)
            else:
                if isinstance(read, ModelRecipe):  # in no time, whatever the numbers are
                    list(crossing.training_faults(read, {"python-stdlib"}, {}))


def test_a_pipe_in_the_place_of_a_recipe_is_refused_and_holds_nobody_up(folder: Folder):
    os.mkfifo(folder.path / "trainings" / "other.yaml")
    assert folder.problems() == ['trainings/other.yaml: found "not a regular file", expected a file that can be read']


def test_a_file_without_an_end_is_refused(folder: Folder):
    (folder.path / "trainings" / "other.yaml").symlink_to("/dev/zero")
    assert folder.problems() == ['trainings/other.yaml: found "not a regular file", expected a file that can be read']


def test_a_recipe_of_more_than_a_megabyte_is_refused_before_it_is_parsed(folder: Folder):
    folder.write("trainings/other.yaml", "#" * (texts.LONGEST + 1))
    assert folder.problems() == ['trainings/other.yaml: found "more than 1.0 MB", expected a recipe of 1.0 MB at most']


def test_a_name_that_is_too_long_for_what_is_named_after_it_is_refused(folder: Folder):
    long = "a" * (LONGEST_NAME + 1)
    folder.write(f"trainings/{long}.yaml", (folder.path / TRAINING).read_bytes())
    assert folder.problems() == [
        f"trainings/{long}.yaml: found the file name {long}.yaml, expected 100 characters at most, then .yaml"
    ]


def test_more_nodes_than_any_cluster_has_are_refused_and_not_tried_one_by_one(folder: Folder):
    line = folder.edit(TRAINING, "nodes: {min: 1, max: 2}", "nodes: {min: 1, max: 1000000000}")
    assert folder.problems() == [
        f"{TRAINING}:{line}: placement.nodes.max: found 1000000000, expected {MOST_NODES} or less"
    ]


def test_a_tag_is_refused_on_sections_and_lists_too(folder: Folder):
    line = folder.edit(TRAINING, "nodes: {", "nodes: !!set {")
    assert folder.problems() == [
        f"{TRAINING}:{line}: placement.nodes: found the tag tag:yaml.org,2002:set, expected a plain value"
    ]


def test_a_rule_of_ones_own_that_is_a_pipe_or_a_folder_is_refused(folder: Folder):
    os.mkfifo(folder.path / "datasets" / "rule.py")
    line = folder.edit(DATASET, "source:", "cleaning: {own_rules: {kept: rule.py, same: ../trainings}}\nsource:")
    [problem] = folder.problems()
    assert problem.startswith(f"{DATASET}:{line}: cleaning.own_rules.kept: ")
    assert problem.endswith("expected a Python file: datasets/rule.py is not a file")
