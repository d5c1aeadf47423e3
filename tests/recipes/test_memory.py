"""The memory plan of a recipe, which needs no snapshot."""

from pathlib import Path

import pytest

from recipes.load import load
from recipes.memory import plan
from trainer.models.decoder import DecoderShape
from trainer.start.memory import parameters
from trainer.start.memory_report import as_json

pytestmark = pytest.mark.pure

RECIPES = Path(__file__).parents[2] / "recipes"


def test_a_recipe_is_estimated_with_the_vocabulary_of_its_dataset():
    model = DecoderShape(layers=4, width=128, heads=4, kv_heads=2, hidden=384)
    assert as_json(plan(load(RECIPES, {}), "tiny-decoder"))["parameters"] == parameters(model, 4096)


def test_an_unknown_recipe_is_refused_with_a_list_of_all_recipes():
    with pytest.raises(ValueError, match=r"^found 'none', expected a training recipe: tiny-decoder$"):
        plan(load(RECIPES, {}), "none")
