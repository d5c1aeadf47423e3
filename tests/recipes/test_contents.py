"""Recipes alone show that a model does not fit the content of its dataset."""

import pytest

from tests.recipes.conftest import TRAINING, Folder

pytestmark = pytest.mark.pure

PICTURES = "datasets/digits.yaml"
VIT = "model:\n  kind: vit\n  layers: 2\n  width: 32\n  heads: 4\n  hidden: 64\n  patch: 2"


def of_pictures(folder: Folder, model: str, length: str = "") -> dict[str, int]:
    """Give the sample training this model, on a dataset of 8 x 12 pixel pictures; returns the lines of its sections."""
    folder.write(
        PICTURES,
        "slipway: dataset/1\ndescription: Digits\nowner: team:data\n"
        "source: {kind: directory, path: digits}\nimages: {height: 8, width: 12, channels: 1}\n",
    )
    folder.write(
        "trainings/digits.yaml",
        "slipway: training/1\ndescription: Digits\nowner: team:training\ndataset: digits\n"
        f"{model}\nbatch:\n  sequences: 8\n  micro: 8\n{length}optimizer:\n  learning_rate: 0.01\nrun:\n  steps: 10\n"
        "checkpoint:\n  every: 5\nplacement:\n  nodes: {min: 1, max: 1}\n  ranks_per_node: 1\n"
        "recovery:\n  no_progress_seconds: 60\n  failures_without_checkpoint: 3\nregistered_model: digits\n",
    )
    lines = (folder.path / "trainings/digits.yaml").read_text().splitlines()
    return {line.split(":")[0].strip(): number for number, line in enumerate(lines, 1)}


def test_a_model_of_pictures_is_refused_for_texts(folder: Folder) -> None:
    line = folder.edit(TRAINING, "model: #", "model:\n  kind: resnet #")
    for field in ("layers", "width", "heads", "kv_heads", "hidden"):
        text = (folder.path / TRAINING).read_text().splitlines()
        folder.write(
            TRAINING, "\n".join(yaml_line for yaml_line in text if not yaml_line.startswith(f"  {field}:")) + "\n"
        )
    expected = "a model that reads tokens, as the dataset holds: this one reads pictures"
    assert folder.problems() == [f'{TRAINING}:{line + 1}: model.kind: found "resnet", expected {expected}']


def test_a_model_of_tokens_is_refused_for_pictures(folder: Folder) -> None:
    line = of_pictures(folder, "model:\n  layers: 1\n  width: 8\n  heads: 1\n  kv_heads: 1\n  hidden: 8")["model"]
    expected = "a model that reads pictures, as the dataset holds: this one reads tokens"
    assert folder.problems() == [f'trainings/digits.yaml:{line}: model.kind: found "decoder", expected {expected}']


def test_a_patch_that_does_not_divide_the_pictures_is_refused(folder: Folder) -> None:
    line = of_pictures(folder, VIT.replace("patch: 2", "patch: 8"))["patch"]
    expected = "a divisor of the pictures' height and width (8 x 12)"
    assert folder.problems() == [f"trainings/digits.yaml:{line}: model.patch: found 8, expected {expected}"]


def test_pictures_have_no_length_and_texts_have_one(folder: Folder) -> None:
    lines = of_pictures(folder, VIT, "  length: 128\n")
    length = folder.edit(TRAINING, "length: 256", "length: 0")
    assert folder.problems() == [
        f"trainings/digits.yaml:{lines['length']}: batch.length: found 128, expected 0, as the dataset holds pictures",
        f"{TRAINING}:{length}: batch.length: found 0, expected a number above 0: tokens a sequence",
    ]
