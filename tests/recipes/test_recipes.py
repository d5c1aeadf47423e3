"""Valid recipes."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from slipway.recipes.dataset import DirectorySource, StdlibSource
from slipway.recipes.load import load
from slipway.recipes.sweep import SweepRecipe
from slipway.recipes.training import with_parameters
from slipway.trainer.config.resolved import SECTIONS
from slipway.trainer.config.sections import Batch
from slipway.trainer.models.decoder import DecoderShape, RopeScaling
from tests.recipes.conftest import DATASET, SWEEP, TRAINING, Folder

pytestmark = pytest.mark.pure


def test_the_recipes_that_come_with_slipway_are_valid():
    recipes = load(environ={})
    assert set(recipes.datasets) == {"python-stdlib"}
    assert set(recipes.trainings) == {"tiny-decoder"}
    assert set(recipes.sweeps) == {"tiny-decoder"}


def test_the_sections_of_a_training_are_the_trainers_own(folder: Folder):
    training = load(folder.path, {}).trainings["tiny-decoder"]
    assert training.model == DecoderShape(layers=4, width=128, heads=4, kv_heads=2, hidden=384)
    assert training.batch == Batch(sequences=16, length=256, micro=8)
    assert list(training.numbers()) == list(SECTIONS)
    assert json.loads(json.dumps(training.numbers())) == training.numbers()


def test_a_preset_is_a_published_decoder_with_the_fields_of_the_recipe_in_place_of_its_own(folder: Folder):
    folder.edit(TRAINING, "layers: 4", "preset: llama-3.1-8b\n  layers: 4")
    training = load(folder.path, {}).trainings["tiny-decoder"]
    assert isinstance(training.model, DecoderShape)
    assert training.model.rope_scaling == RopeScaling() and training.model.layers == 4
    assert "preset" not in training.numbers()["model"]
    assert with_parameters(training, {"model.window": 8}).model == replace(training.model, window=8)


def test_the_tiny_decoder_has_about_two_million_parameters():
    recipes = load(environ={})
    model, vocabulary = recipes.trainings["tiny-decoder"].model, recipes.datasets["python-stdlib"].tokenizer.vocab_size
    assert isinstance(model, DecoderShape)
    attention = 2 * model.width**2 * (1 + model.kv_heads / model.heads)
    block = attention + 3 * model.width * model.hidden
    assert 1e6 < model.layers * block + vocabulary * model.width < 2e6


def test_a_new_file_is_a_new_recipe(folder: Folder):
    shutil.copy(folder.path / TRAINING, folder.path / "trainings/second.yaml")
    assert list(load(folder.path, {}).trainings) == ["second", "tiny-decoder"]


def test_the_former_name_of_a_field_is_still_read(folder: Folder):
    folder.edit(TRAINING, "failures_without_checkpoint: 3", "fruitless_incarnations: 5")
    assert load(folder.path, {}).trainings["tiny-decoder"].recovery.failures_without_checkpoint == 5


def test_a_field_that_stands_under_both_of_its_names_is_refused(folder: Folder):
    folder.edit(
        TRAINING, "failures_without_checkpoint: 3", "failures_without_checkpoint: 3\n  fruitless_incarnations: 5"
    )
    [problem] = folder.problems()
    assert "recovery.fruitless_incarnations: found an unknown field" in problem


def test_a_backup_file_of_an_editor_is_no_recipe(folder: Folder):
    (folder.path / "trainings/.#tiny-decoder.yaml").symlink_to("nobody@nowhere")
    folder.write("trainings/tiny-decoder.yaml~", "half")
    assert list(load(folder.path, {}).trainings) == ["tiny-decoder"]


def test_a_sweep_reads_back_equal_from_what_it_dumps():
    sweep = load(environ={}).sweeps["tiny-decoder"]
    assert SweepRecipe.model_validate_json(sweep.model_dump_json()) == sweep


def test_a_parameter_can_be_set_and_nothing_else_changes(folder: Folder):
    training = load(folder.path, {}).trainings["tiny-decoder"]
    changed = with_parameters(training, {"optimizer.learning_rate": 0.001, "run.steps": 80})
    assert (changed.optimizer.learning_rate, changed.run.steps) == (0.001, 80)
    assert with_parameters(changed, {"optimizer.learning_rate": 0.003, "run.steps": 300}) == training


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"optimizer.beta2": 2}, "optimizer.beta2: found 2, expected 0 or more, below 1"),
        ({"run.steps": 1.5}, "run.steps: found 1.5, expected a whole number"),
        (
            {"run.length": 1},
            "run.length: found an unknown parameter, "
            "expected one of run.steps, run.seed, run.precision, run.shuffle_shards",
        ),
        ({"owner": "x"}, "owner: found an unknown parameter, expected <section>.<field>, the section one of model"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused_by_name(parameters: dict[str, object], sentence: str):
    training = load(environ={}).trainings["tiny-decoder"]
    with pytest.raises(ValueError) as caught:
        with_parameters(training, parameters)
    assert str(caught.value).startswith(sentence)


def test_the_fields_of_an_evaluation_set_are_named_in_a_recipe(folder: Folder):
    sets = "[{file: q.jsonl, fields: [question, answer]}, plain.txt]"
    folder.edit(DATASET, "tokenizer:", f"cleaning:\n  decontamination:\n    against: {sets}\ntokenizer:")
    comparison = load(folder.path).datasets["python-stdlib"].cleaning.decontamination
    assert comparison is not None
    assert [(Path(source.file).name, source.fields) for source in comparison.against] == [
        ("q.jsonl", ("question", "answer")),
        ("plain.txt", ("text",)),
    ]


def test_the_content_of_a_dataset_depends_neither_on_its_owner_nor_on_its_place(folder: Folder):
    folder.edit(DATASET, "kind: stdlib", "kind: directory\n  path: here")
    before = load(folder.path, {}).datasets["python-stdlib"]
    folder.edit(DATASET, "team:data", "team:others")
    folder.edit(DATASET, "path: here", "path: /there")
    after = load(folder.path, {}).datasets["python-stdlib"]
    assert before != after
    assert before.content() == after.content()


def test_the_content_of_a_dataset_changes_with_its_processing(folder: Folder):
    before = load(folder.path, {}).datasets["python-stdlib"].content()
    folder.edit(DATASET, "tokens: 400000", "tokens: 400001")
    after = load(folder.path, {}).datasets["python-stdlib"].content()
    assert before != after
    assert json.loads(json.dumps(after)) == after


def test_a_directory_is_found_relative_to_its_recipe(folder: Folder):
    folder.edit(DATASET, "kind: stdlib", "kind: directory\n  path: ../corpus")
    source = load(folder.path, {}).datasets["python-stdlib"].source
    assert isinstance(source, DirectorySource)
    assert source.path == str((folder.path / "corpus").resolve())


@pytest.mark.parametrize("path", ["ast.py", "json/decoder.py", "unittest/mock.py"])
def test_the_standard_library_is_taken(path: str):
    assert StdlibSource(kind="stdlib").selects(path)


@pytest.mark.parametrize(
    "path", ["test/test_ast.py", "ctypes/test/a.py", "idlelib/run.py", "site-packages/yaml/loader.py", "LICENSE.txt"]
)
def test_tests_and_installed_packages_are_left_out(path: str):
    assert not StdlibSource(kind="stdlib").selects(path)


@pytest.mark.parametrize(("written", "value"), [("3e-4", 3e-4), ("1", 1.0), (".5", 0.5), ("+2.", 2.0)])
def test_numbers_may_be_written_as_people_do(folder: Folder, written: str, value: float):
    folder.edit(TRAINING, "learning_rate: 3e-3", f"learning_rate: {written}")
    assert load(folder.path, {}).trainings["tiny-decoder"].optimizer.learning_rate == value


def test_words_that_are_switches_or_dates_in_yaml_1_1_are_text(folder: Folder):
    folder.edit(TRAINING, "registered_model: slipway-tiny-decoder", "registered_model: on")
    folder.edit(
        SWEEP, "description: The optimiser of the tiny decoder, by successive halving", "description: 2026-01-01"
    )
    recipes = load(folder.path, {})
    assert recipes.trainings["tiny-decoder"].registered_model == "on"
    assert recipes.sweeps["tiny-decoder"].description == "2026-01-01"


def second_training(folder: Folder, model: str) -> None:
    text = (folder.path / TRAINING).read_text()
    folder.write("trainings/other.yaml", text.replace("registered_model: slipway-tiny-decoder", model))


def test_two_trainings_may_lead_to_one_registered_model(folder: Folder):
    second_training(folder, "registered_model: slipway-tiny-decoder")
    assert {training.registered_model for training in load(folder.path, {}).trainings.values()} == {
        "slipway-tiny-decoder"
    }


def test_registered_models_that_the_ui_would_show_as_one_are_refused(folder: Folder):
    second_training(folder, "registered_model: slipway.tiny_decoder")
    line = folder.edit(TRAINING, "registered_model: slipway-tiny-decoder", "registered_model: slipway-tiny-decoder")
    assert folder.problems() == [
        f'{TRAINING}:{line}: registered_model: found "slipway-tiny-decoder", expected slipway.tiny_decoder, as in '
        "trainings/other.yaml, or a name that differs from it in a letter or digit"
    ]


def test_a_schedule_is_not_needed(folder: Folder):
    folder.edit(TRAINING, 'retrain: "0 3 * * 0"', "retrain: null")
    assert load(folder.path, {}).trainings["tiny-decoder"].retrain is None


@pytest.mark.process
def test_recipes_are_read_without_the_control_plane():
    code = "import sys; from slipway.recipes.load import load; load(); "
    code += "print({'dagster', 'mlflow', 'torch'} & {*sys.modules})"
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_a_batch_has_a_sequence_for_each_rank(folder: Folder):
    folder.edit(TRAINING, "ranks_per_node: 1", "ranks_per_node: 9")
    [problem] = folder.problems()
    assert "batch.sequences: found 16, expected 18 (a sequence for each rank) or more, with nodes: 2" in problem


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (
            "tensor: 2",
            "layout.tensor: found 2, expected a divisor of the 1 ranks of a node (a node is a machine, a rank",
        ),
        ("pipeline: 2", "layout.pipeline: found 2 (x tensor 1), expected a divisor of 1 ranks, with nodes: 1"),
    ],
)
def test_a_layout_fits_every_number_of_nodes_that_the_training_may_have(folder: Folder, layout: str, expected: str):
    folder.edit(TRAINING, "placement:", f"layout: {{{layout}}}\nplacement:")
    [problem] = folder.problems()
    assert expected in problem
