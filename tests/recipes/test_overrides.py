"""Overrides by environment variables: they reach the fields of files, and are validated like them."""

import re

import pytest

from slipway.recipes.load import load
from tests.recipes.conftest import TRAINING, Folder

pytestmark = pytest.mark.pure

STEPS = "SLIPWAY_TRAININGS__TINY_DECODER__RUN__STEPS"


def test_a_variable_overrides_a_field(folder: Folder):
    assert load(folder.path, {STEPS: "50"}).trainings["tiny-decoder"].run.steps == 50


def test_a_section_that_the_file_leaves_out_can_be_set(folder: Folder):
    environ = {"SLIPWAY_TRAININGS__TINY_DECODER__VALIDATION__EVERY": "10"}
    assert load(folder.path, environ).trainings["tiny-decoder"].validation.every == 10


def test_a_parameter_of_a_sweep_is_two_parts(folder: Folder):
    environ = {
        "SLIPWAY_SWEEPS__TINY_DECODER__TRIAL__OPTIMIZER__CLIP": "0.5",
        "SLIPWAY_SWEEPS__TINY_DECODER__SPACE__OPTIMIZER__BETA2": "{choice: [0.9, 0.95]}",
    }
    sweep = load(folder.path, environ).sweeps["tiny-decoder"]
    assert sweep.trial["optimizer.clip"] == 0.5
    assert sweep.space["optimizer.beta2"].choice == (0.9, 0.95)


def test_an_empty_value_is_null(folder: Folder):
    assert load(folder.path, {"SLIPWAY_TRAININGS__TINY_DECODER__RETRAIN": ""}).trainings["tiny-decoder"].retrain is None


def test_other_variables_are_left_alone(folder: Folder):
    assert load(folder.path, {"SLIPWAY_HOME": "/x", "PATH": "/bin"}) == load(folder.path, {})


def test_an_override_corrects_a_file(folder: Folder):
    folder.edit(TRAINING, "steps: 300", "steps: many")
    assert load(folder.path, {STEPS: "50"}).trainings["tiny-decoder"].run.steps == 50


WRONG = """
TRAININGS__TINY_DECODER__RUN__STEPS=many
    run.steps: found "many", expected a whole number
TRAININGS__TINY_DECODER__RUN__STEPS=0
    run.steps: found 0, expected a number above 0
TRAININGS__TINY_DECODER__RUN__STEPS={a: 1}
    run.steps: found {"a": 1}, expected a whole number
TRAININGS__TINY_DECODER__RUN__STEPS=[1
    run.steps: found a mistake in the YAML (while parsing a flow sequence, expected ',' or ']', but got
    '<stream end>'), expected YAML
TRAININGS__TINY_DECODER__RUN__STEP=1
    run.step: found an unknown field (did you mean steps?), expected one of steps, seed, precision,
    shuffle_shards, freeze
TRAININGS__TINY_DECODER__MODEL={layers: 1, width: 2, heads: 1, kv_heads: 1, hidden: x}
    model.hidden: found "x", expected a whole number
TRAININGS__TINY_DECODER__OWNER__X=1
    owner.x: found a field of a value, expected owner to be a section
TRAININGS__TINY_DECODER__NOPE__X=1
    nope: found an unknown field, expected one of description, owner, dataset, placement, recovery, retrain, renewal,
    mix, model, batch, optimizer, run, checkpoint, validation, communication, layout, storage, observation,
    evaluation, hardware, runtime, init, registered_model, suite, gate
TRAININGS__TINY_DECODER__NAME=x
    name: found "x", expected no such variable: a recipe has the name of its file
TRAININGS__TINY_DECODER__DATASET=novels
    dataset: found "novels", expected the name of a dataset recipe (python-stdlib)
TRAININGS__TINY_DECODER=x
    found no field, expected SLIPWAY_TRAININGS__<RECIPE>__<FIELD>
TRAININGS__VAST__RUN__STEPS=1
    found the unknown recipe vast, expected one of trainings/ (tiny-decoder)
TRAINING__TINY_DECODER__RUN__STEPS=1
    found the kind TRAINING, expected a variable that begins SLIPWAY_DATASETS__ or SLIPWAY_SUITES__ or
    SLIPWAY_TRAININGS__ or SLIPWAY_SWEEPS__
SWEEPS__TINY_DECODER__TRIAL__RUN__LENGTH=1
    trial.run.length: found an unknown parameter, expected one of run.steps, run.seed, run.precision,
        run.shuffle_shards, run.freeze
"""


@pytest.mark.parametrize("case", re.split(r"\n(?! )", WRONG.strip()))
def test_a_wrong_override_is_reported_with_its_variable(folder: Folder, case: str):
    setting, _, sentence = case.partition("\n")
    variable, _, value = f"SLIPWAY_{setting}".partition("=")
    assert folder.problems({variable: value}) == [f"{variable}: {' '.join(sentence.split())}"]
