"""The two kinds of datasets, texts and images, and which of them a recipe is."""

from typing import Any

from assets.datasets.images.kind import IMAGES
from assets.datasets.kind import DatasetKind
from assets.datasets.texts.kind import TEXTS
from recipes.dataset import DatasetRecipe


def dataset_kind(recipe: DatasetRecipe) -> DatasetKind[Any]:
    """What the lane of this recipe's dataset does."""
    return TEXTS if recipe.images is None else IMAGES
