"""`python -m recipes.memory`: the memory of a recipe, without its snapshot."""

import json
from pathlib import Path

import pytest

from recipes.memory import main
from trainer.memory import parameters
from trainer.shapes import DecoderShape

RECIPES = Path(__file__).parents[2] / "recipes"


def test_a_recipe_is_estimated_with_the_vocabulary_of_its_dataset(capsys: pytest.CaptureFixture[str]):
    assert main(["tiny-decoder", "--folder", str(RECIPES), "--json"]) == 0
    model = DecoderShape(layers=4, width=128, heads=4, kv_heads=2, hidden=384)
    assert json.loads(capsys.readouterr().out)["parameters"] == parameters(model, 4096)


def test_a_recipe_that_is_not_there_is_named_beside_those_that_are(capsys: pytest.CaptureFixture[str]):
    assert main(["none", "--folder", str(RECIPES)]) == 1
    assert capsys.readouterr().err == "found 'none', expected a training recipe: tiny-decoder\n"
