"""The two kinds of datasets, texts and images, and which of them a recipe is."""

from typing import Any

from slipway.assets.datasets.images.kind import IMAGES
from slipway.assets.datasets.kind import DatasetKind
from slipway.assets.datasets.texts.kind import TEXTS
from slipway.recipes.dataset import DatasetRecipe


def dataset_kind(recipe: DatasetRecipe) -> DatasetKind[Any]:
    """What the lane of this recipe's dataset does."""
    return TEXTS if recipe.images is None else IMAGES
