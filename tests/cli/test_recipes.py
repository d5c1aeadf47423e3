"""Recipes by the command: a folder of one's own, new recipes, and what is shown of them."""

import itertools
import json
import re
from pathlib import Path

import pytest

from slipway.recipes import user_folder
from slipway.recipes.folder import BESIDE_THE_CODE, MARK, selected
from slipway.recipes.load import load
from slipway.resources.home import DEFAULT, Home
from tests.cli.conftest import Call

KINDS = {"dataset": "datasets", "training": "trainings", "sweep": "sweeps"}


@pytest.fixture
def folder(slipway: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own, in which the command is called."""
    assert slipway("init", "mine").code == 0
    monkeypatch.chdir(tmp_path / "mine")
    return tmp_path / "mine"


def test_a_new_folder_has_an_example_of_each_kind_that_passes_the_check(slipway: Call, folder: Path):
    result = slipway("recipes", "check", "--json")
    assert (result.code, result.err) == (0, "")
    recipes = [(recipe["kind"], recipe["name"]) for recipe in json.loads(result.out)]
    assert recipes == [
        ("datasets", user_folder.DATASET),
        ("trainings", user_folder.TRAINING),
        ("sweeps", user_folder.SWEEP),
    ]
    assert (folder / "README.md").read_text().startswith("# ")


def test_a_folder_with_something_in_it_is_left_as_it_is(slipway: Call, folder: Path, tmp_path: Path):
    result = slipway("init", folder)
    assert result.code == 1
    assert result.err == f"slipway: {folder}: found a folder that is not empty, expected an empty folder or none\n"


def test_a_folder_of_ones_own_is_found_from_below_it_and_holds_its_home(folder: Path):
    assert selected({}, folder / "trainings") == folder
    assert selected({"SLIPWAY_RECIPES": "/elsewhere"}, folder) == Path("/elsewhere")
    assert Home.of({}).root == folder / ".slipway"
    assert Home.of({"SLIPWAY_HOME": "/elsewhere"}).root == Path("/elsewhere")


def test_outside_such_a_folder_the_recipes_and_the_home_are_beside_the_code(tmp_path: Path):
    assert not any((ancestor / MARK).exists() for ancestor in (tmp_path, *tmp_path.parents))
    assert selected({}, tmp_path) == BESIDE_THE_CODE
    assert Home.of({"SLIPWAY_RECIPES": str(tmp_path)}).root == DEFAULT


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_recipe_of_each_kind_passes_the_check(kind: str, slipway: Call, folder: Path):
    result = slipway("recipes", "new", kind, "another-one")
    assert result.out == f"{folder / KINDS[kind] / 'another-one.yaml'}\n"
    assert slipway("recipes", "check").code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_of_a_new_recipe_has_its_meaning_above_it(kind: str, slipway: Call, folder: Path):
    slipway("recipes", "new", kind, "another-one")
    lines = (folder / KINDS[kind] / "another-one.yaml").read_text().splitlines()
    field = re.compile(r"^[# ]*?#?[a-z_0-9]+:( |$)")
    for above, line in itertools.pairwise(lines):
        if field.match(line) and not line.startswith("slipway:") and "." not in line.partition(":")[0]:
            assert above.lstrip("# ").strip(), f"{line!r} has nothing above it"


def test_a_default_that_is_uncommented_changes_nothing(folder: Path):
    """What a recipe says of a default is the default: written out, the recipe means the same."""
    before = load(folder, {})
    for path in folder.glob("*/*.yaml"):
        text = path.read_text()
        path.write_text(re.sub(r"^(  +)#(\w+: (?!\.\.\.).*)$", r"\1\2", text, flags=re.MULTILINE))
        assert path.read_text() != text or path.parent.name == "sweeps"
    assert load(folder, {}) == before


def test_a_name_that_is_taken_or_none_is_refused_and_nothing_is_written(slipway: Call, folder: Path):
    before = sorted(folder.rglob("*"))
    assert "exists already" in slipway("recipes", "new", "dataset", user_folder.DATASET).err
    assert "found the name 'No Name', expected lower-case" in slipway("recipes", "new", "dataset", "No Name").err
    assert sorted(folder.rglob("*")) == before


def test_a_training_needs_a_dataset_to_train_on(slipway: Call, folder: Path):
    (folder / "datasets" / f"{user_folder.DATASET}.yaml").unlink()
    result = slipway("recipes", "new", "training", "other")
    assert result.err == (
        f"slipway: {folder}: found no dataset recipe for the training to refer to; "
        "first: slipway recipes new dataset NAME\n"
    )


def test_a_recipe_is_shown_with_every_default(slipway: Call, folder: Path):
    training = json.loads(slipway("recipes", "show", "my-m", "--kind", "training", "--json").out)["training"]
    assert (training["name"], training["optimizer"]["beta1"]) == (user_folder.TRAINING, 0.9)
    both = slipway("recipes", "show", user_folder.TRAINING).out
    assert both.startswith(f"# training {user_folder.TRAINING}\n") and f"# sweep {user_folder.SWEEP}\n" in both


@pytest.mark.nightly
def test_a_plan_tells_what_a_changed_field_comes_to(slipway: Call, folder: Path):
    small, large = (
        json.loads(slipway("plan", user_folder.TRAINING, f"batch.micro={micro}", "--json").out)["stages"][0]["parts"]
        for micro in (1, 4)
    )
    assert large["weights"] == small["weights"]
    assert large["activations"] == pytest.approx(4 * small["activations"], rel=0.1)
