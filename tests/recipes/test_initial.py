"""The section `init` of a training recipe: one source, and its part of the identity."""

from typing import Any

import pytest

from slipway.recipes.initial import InitSection
from slipway.recipes.load import load
from slipway.recipes.training import ModelRecipe, with_parameters
from slipway.trainer.config.resolved import SECTIONS
from tests.recipes.conftest import SWEEP, TRAINING, Folder

pytestmark = pytest.mark.pure

BEFORE = "registered_model: slipway-tiny-decoder"
DIGEST = "a" * 64


def start(folder: Folder, init: str) -> int:
    """Write `init: {...}` into the training recipe; returns its line."""
    return folder.edit(TRAINING, BEFORE, f"init: {init}\n{BEFORE}")


def training(folder: Folder) -> ModelRecipe:
    return load(folder.path, {}).trainings["tiny-decoder"]


def init(folder: Folder) -> InitSection:
    section = training(folder).init
    assert section is not None
    return section


def test_without_init_the_sections_alone_decide_a_training(folder: Folder):
    assert set(training(folder).numbers()) == set(SECTIONS)


@pytest.mark.parametrize("written", ["../weights/llama", "./../weights/llama"])
def test_a_folder_is_relative_to_the_recipe(folder: Folder, written: str):
    start(folder, f"{{huggingface: {written}}}")
    assert init(folder).folder == str(folder.path.resolve() / "weights/llama")
    assert init(folder).layout == "huggingface"


def test_a_checkpoint_is_a_folder_or_a_step_of_a_training(folder: Folder):
    start(folder, "{checkpoint: ../some/where}")
    assert init(folder).folder == str(folder.path.resolve() / "some/where")
    folder.edit(TRAINING, "../some/where", "tiny-decoder-0123456789ab/200")
    assert init(folder).checkpoint == "tiny-decoder-0123456789ab/200"


def test_a_registered_model_is_by_default_the_champion(folder: Folder):
    (folder.path / SWEEP).unlink()
    start(folder, "{model: base}")
    assert init(folder).moving_alias == "champion"
    folder.edit(TRAINING, "{model: base}", "{model: base, version: 3}")
    assert (init(folder).version, init(folder).moving_alias) == (3, None)


def test_the_digest_and_not_the_folder_is_part_of_the_identity():
    first, there = (InitSection.model_validate({"huggingface": path, "digest": DIGEST}) for path in ("/here", "/there"))
    assert first.identity() == there.identity() == {"layout": "huggingface", "digest": DIGEST}


def test_init_stays_when_a_parameter_is_set(folder: Folder):
    start(folder, f"{{huggingface: ../weights/llama, digest: {DIGEST}}}")
    changed = with_parameters(training(folder), {"run.steps": 7})
    assert changed.init == init(folder)
    assert changed.numbers()["init"] == {"layout": "huggingface", "digest": DIGEST}


REFUSED: list[tuple[str, str]] = [
    ("{}", "init: found {}, expected exactly one of checkpoint, model, huggingface"),
    (
        "{model: a, huggingface: /b}",
        'init: found {"model": "a", "huggingface": "/b"}, expected exactly one of checkpoint, model, huggingface',
    ),
    ("{model: a, version: 1, alias: b}", 'init.alias: found "b", expected none beside version'),
    ("{huggingface: /a, version: 1}", "init.version: found 1, expected only beside model"),
    ("{model: a, version: 0}", "init.version: found 0, expected 1 or more"),
    (
        "{checkpoint: here}",
        'init.checkpoint: found "here", expected <training>/<step>, or a folder that begins with /, ./ or ../',
    ),
    ("{huggingface: /a, digest: abc}", 'init.digest: found "abc", expected 64 hex digits'),
    ("{weights: /a}", "init.weights: found an unknown field, expected one of checkpoint, model, version, alias"),
    ("base", 'init: found "base", expected a section'),
]


@pytest.mark.parametrize(("written", "message"), REFUSED)
def test_an_invalid_init_is_reported_with_its_line(folder: Folder, written: str, message: Any):
    line = start(folder, written)
    problems = folder.problems()
    assert any(problem.startswith(f"{TRAINING}:{line}: {message}") for problem in problems), problems


def test_a_sweep_cannot_start_from_an_alias_that_may_move(folder: Folder):
    start(folder, "{model: base}")
    [problem] = folder.problems()
    assert (
        problem.startswith(f"{SWEEP}:") and "training: found a training that starts from the alias champion" in problem
    )
    folder.edit(TRAINING, "{model: base}", "{model: base, version: 3}")
    assert init(folder).version == 3
