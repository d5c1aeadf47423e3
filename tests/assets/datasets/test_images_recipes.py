"""Recipes of labelled images: short ones, and the sections that are refused beside images."""

import pytest

from slipway.recipes.dataset import DatasetRecipe
from slipway.recipes.load import load
from slipway.recipes.problems import InvalidRecipes

pytestmark = pytest.mark.pure

SHORT = """\
slipway: dataset/1
source: {kind: directory, path: ../digits}
images: {height: 8, width: 8}
"""


def loaded(tmp_path, text: str) -> DatasetRecipe:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "digits.yaml").write_text(text)
    return load(tmp_path, {}).datasets["digits"]


def test_three_lines_are_a_recipe(tmp_path):
    recipe = loaded(tmp_path, SHORT)
    assert recipe.images is not None
    assert (recipe.images.channels, recipe.images.image_field, recipe.images.label_field) == (3, "image", "label")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("tokenizer: {vocab_size: 300}", "expected no such section beside images: it is for texts"),
        ("cleaning: {normalize: false}", "expected no such section beside images: it is for texts"),
        ("shards: {tokens: 300}", "expected no such section beside images: it is for texts"),
        ("reading: {text_field: body}", "expected no such field beside images: see images.image_field"),
    ],
)
def test_sections_for_texts_are_refused_with_their_line(tmp_path, more, message):
    with pytest.raises(InvalidRecipes, match=rf"datasets/digits.yaml:4: [a-z_.]+: found .*, {message}"):
        loaded(tmp_path, SHORT + more)


def test_the_standard_library_holds_no_images(tmp_path):
    with pytest.raises(InvalidRecipes, match=r'source.kind: found "stdlib", expected directory or s3'):
        loaded(tmp_path, SHORT.replace("kind: directory, path: ../digits", "kind: stdlib"))


def test_a_size_is_required_and_the_channels_are_those_of_a_png(tmp_path):
    with pytest.raises(InvalidRecipes) as refused:
        loaded(tmp_path, SHORT.replace("height: 8, width: 8", "width: 0, channels: 2"))
    message = str(refused.value)
    assert "images.height: found nothing, expected a whole number" in message
    assert "images.width: found 0, expected 1 or more" in message
    assert "images.channels: found 2, expected 1, 3 or 4" in message


def test_the_content_of_an_image_recipe_has_no_section_for_texts(tmp_path):
    assert set(loaded(tmp_path, SHORT).content()) == {"source", "reading", "images", "split"}
