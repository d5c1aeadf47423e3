"""Mixes in recipes: a training names several datasets with weights; what cannot be trained is refused with its line."""

import pytest

from slipway.recipes.load import load
from slipway.recipes.strict import RefusedValue
from slipway.recipes.training import value_at, with_parameters
from slipway.trainer.config.resolved import SECTIONS
from tests.recipes.conftest import DATASET, SWEEP, TRAINING, Folder

pytestmark = pytest.mark.pure

NAMED = "dataset: python-stdlib # a file in datasets/"
MIX = "mix: {weights: {web: 3, code: 1}, phases: [{after_step: 200, weights: {code: 1}}], passes_at_most: 4}"


@pytest.fixture
def mixed(folder: Folder) -> Folder:
    """Two datasets with one tokenizer, and a training on both."""
    text = (folder.path / DATASET).read_text().replace("  vocab_size: 4096", "  file: shared.json")
    (folder.path / "datasets" / "shared.json").write_text("{}")
    for name in ("web", "code"):
        folder.write(f"datasets/{name}.yaml", text)
    folder.edit(TRAINING, NAMED, MIX)
    (folder.path / SWEEP).unlink()
    return folder


@pytest.fixture(autouse=True)
def vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared tokenizer is not a real one: no test here needs its size."""
    monkeypatch.setattr("slipway.recipes.plan_request.vocabulary", lambda dataset: 512)


def test_a_training_on_several_datasets_names_all_of_them(mixed: Folder) -> None:
    training = load(mixed.path, {}).trainings["tiny-decoder"]
    assert training.datasets == ("code", "web")
    assert training.numbers()["mix"] == {
        "weights": {"web": 3.0, "code": 1.0},
        "phases": [{"after_step": 200, "weights": {"code": 1.0}}],
        "passes_at_most": 4.0,
    }


def test_a_training_on_one_dataset_has_the_numbers_that_it_had_before_there_were_mixes(folder: Folder) -> None:
    """So it keeps its id."""
    training = load(folder.path, {}).trainings["tiny-decoder"]
    assert training.datasets == ("python-stdlib",)
    assert list(training.numbers()) == list(SECTIONS) and "mix" not in SECTIONS


def test_a_sweep_may_search_the_weights(mixed: Folder) -> None:
    training = load(mixed.path, {}).trainings["tiny-decoder"]
    changed = with_parameters(training, {"mix.weights.code": 0.5, "mix.passes_at_most": 8.0})
    assert value_at(changed, "mix.weights.code") == 0.5
    assert changed.mix is not None and changed.mix.weights["web"] == 3.0 and changed.mix.passes_at_most == 8.0


def test_a_weight_of_a_dataset_that_the_mix_has_not_is_an_unknown_parameter(mixed: Folder, folder: Folder) -> None:
    training = load(mixed.path, {}).trainings["tiny-decoder"]
    with pytest.raises(RefusedValue, match=r"an unknown parameter, expected one of mix.weights.web, mix.weights.code"):
        with_parameters(training, {"mix.weights.books": 1.0})


def test_a_weight_is_no_parameter_of_a_training_on_one_dataset(folder: Folder) -> None:
    training = load(folder.path, {}).trainings["tiny-decoder"]
    with pytest.raises(RefusedValue, match="a parameter of a mix, expected a training with a section mix"):
        with_parameters(training, {"mix.weights.web": 1.0})


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("code: 1}, ph", "code: 0}, ph", "mix.weights.code: found 0, expected a number above 0"),
        ("code: 1}, ph", "code: -1}, ph", "mix.weights.code: found -1, expected a number above 0"),
        ("web: 3", "books: 3", 'mix.weights.books: found "books", expected the name of a dataset recipe (code, '),
        ("after_step: 200", "after_step: 300", "mix.phases: found [{"),
        (MIX, "", "dataset: found null, expected the name of a dataset, or a section mix"),
        (MIX, f"dataset: web\n{MIX}", 'dataset: found "web", expected the name of a dataset, or a section mix'),
    ],
)
def test_a_mix_that_cannot_be_trained_is_refused(mixed: Folder, old: str, new: str, problem: str) -> None:
    mixed.edit(TRAINING, old, new)
    assert any(problem in message for message in mixed.problems()), mixed.problems()


def test_datasets_that_each_train_a_tokenizer_are_refused_with_both_names(mixed: Folder) -> None:
    for name in ("web", "code"):
        mixed.edit(f"datasets/{name}.yaml", "  file: shared.json", "  vocab_size: 4096")
    [problem] = mixed.problems()
    assert "mix: found datasets code and web, each of which trains a tokenizer of its own, expected one" in problem
