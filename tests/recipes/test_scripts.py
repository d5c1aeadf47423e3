"""Recipes of scripts: their fields, and the problems of a script that cannot run."""

import shutil
from pathlib import Path

import pytest

from slipway.recipes.load import load
from tests.recipes.conftest import SWEEP, Folder

SCRIPT = "trainings/bigram.yaml"
OWN = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def scripted(folder: Folder) -> Folder:
    """The samples and the example of a script."""
    shutil.copytree(OWN / "examples", folder.path / "examples")
    shutil.copy(OWN / SCRIPT, folder.path / SCRIPT)
    return folder


def test_a_training_with_a_command_is_one_by_a_script(scripted: Folder):
    recipes = load(scripted.path, {})
    assert list(recipes.scripts) == ["bigram"] and "bigram" not in recipes.trainings
    assert set(recipes.all_trainings) == {"bigram", "tiny-decoder"}
    assert recipes.scripts["bigram"].code == str(scripted.path / "examples" / "bigram.py")
    assert recipes.scripts["bigram"].command == ("python", "bigram.py")


def test_the_example_is_under_60_lines():
    assert len((OWN / "examples" / "bigram.py").read_text().splitlines()) < 60


def test_an_override_sets_an_existing_parameter(scripted: Folder):
    name = "SLIPWAY_TRAININGS__BIGRAM__PARAMETERS__STEPS"
    assert load(scripted.path, {name: "7"}).scripts["bigram"].parameters["steps"] == 7


def test_an_override_of_an_unknown_parameter_is_refused(scripted: Folder):
    name = "SLIPWAY_TRAININGS__BIGRAM__PARAMETERS__STPES"
    (problem,) = scripted.problems({name: "7"})
    assert problem.startswith(
        f"{name}: parameters.stpes: found an unknown parameter (did you mean steps?), expected one of steps, batch, "
    )


@pytest.mark.parametrize(
    ("old", "new", "field", "sentence"),
    [
        (
            "../examples/bigram.py #",
            "../nowhere #",
            "code",
            'found "../nowhere", expected an existing folder or file',
        ),
        (
            "[python, bigram.py]",
            "[python, nowhere.py]",
            "command",
            'found ["python", "nowhere.py"], expected a file of the code: nowhere.py does not exist',
        ),
        (
            "[python, bigram.py]",
            "[./nowhere, bigram.py]",
            "command",
            'found ["./nowhere", "bigram.py"], expected a file of the code: ./nowhere does not exist',
        ),
        ("[python, bigram.py]", "python bigram.py", "command", 'found "python bigram.py", expected a list'),
        ("[python, bigram.py]", "[]", "command", "found [], expected 1 or more"),
        (
            "seed: 0",
            "seed: {first: 0}",
            "parameters.seed",
            'found {"first": 0}, expected a number, text, true, false, null, or a list of these',
        ),
        ("seed: 0", "Seed: 0", "parameters.Seed", "found 0, expected a lower-case name"),
        (
            "retrain: null",
            "optimizer: null #",
            "optimizer",
            "found an unknown field, expected one of description, owner, dataset, placement, recovery, retrain, "
            "renewal, code, command, parameters",
        ),
    ],
)
def test_a_script_that_cannot_run_is_reported_with_its_line(
    scripted: Folder, old: str, new: str, field: str, sentence: str
):
    line = scripted.edit(SCRIPT, old, new)
    assert scripted.problems() == [f"{SCRIPT}:{line}: {field}: {sentence}"]


@pytest.mark.parametrize("name, value", [("quality", "0 0 * * *"), ("live_drift", "0.3"), ("from_champion", "true")])
def test_a_renewal_of_a_script_that_needs_a_champion_is_refused(scripted: Folder, name: str, value: str):
    line = scripted.edit(SCRIPT, "retrain: null", f"renewal: {{new_data: 0.1, {name}: {value}}}")
    (problem,) = scripted.problems()
    assert problem.startswith(f"{SCRIPT}:{line}: renewal.{name}: found ")
    assert problem.endswith(f"expected no {name}: a script's training has no registered model")


def test_code_that_would_hide_slipways_package_is_refused(scripted: Folder):
    (scripted.path / "examples" / "slipway.py").touch()
    line = scripted.edit(SCRIPT, "code: ../examples/bigram.py", "code: ../examples")
    (problem,) = scripted.problems()
    assert problem.startswith(f"{SCRIPT}:{line}: code: ")
    assert problem.endswith("expected another name for slipway.py: it would hide Slipway's package")


def test_a_script_needs_its_shards_before_it_starts(scripted: Folder):
    line = scripted.edit(SCRIPT, "  ranks_per_node: 1", "  ranks_per_node: 1\n  staging: streaming")
    sentence = 'placement.staging: found "streaming", expected auto, whole or window'
    assert scripted.problems() == [f"{SCRIPT}:{line + 1}: {sentence}"]


def test_a_sweep_over_a_script_is_refused(scripted: Folder):
    line = scripted.edit(SWEEP, "training: tiny-decoder", "training: bigram")
    (problem,) = scripted.problems()
    assert problem == f'{SWEEP}:{line}: training: found "bigram", expected the name of a training recipe (tiny-decoder)'
