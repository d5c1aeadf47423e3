"""The cleaner: takes one document through normalisation, rules and masks to the features of what is left."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from assets.datasets.cleaning.normalise import normalise
from recipes.cleaning import Cleaning


@dataclass(frozen=True)
class Cleaned:
    """A document after cleaning. Features are None where the recipe does not need them or it is removed."""

    text: str
    removed: str | None
    """The name of the first rule that it breaks."""
    masked: Mapping[str, int]
    """How many places were masked, by kind; kinds without any are absent."""
    language: str
    signature: npt.NDArray[np.uint32] | None = field(default=None, compare=False)
    """MinHash of its word 5-grams; with near-duplicates on."""
    bands: npt.NDArray[np.uint64] | None = field(default=None, compare=False)
    """The signature's bands; empty for a text without a word."""
    fingerprints: npt.NDArray[np.uint64] | None = field(default=None, compare=False)
    """Winnowed fingerprints of its word 8-grams, ascending, each once; with decontamination on."""


class Cleaner:
    """Cleans documents as a recipe says. Pure: the same document gives the same result in every process."""

    def __init__(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning

    def clean(self, name: str, text: str) -> Cleaned:
        """`name` is the document's, as its source has it: its suffix tells source code from prose."""
        text = normalise(text) if self._cleaning.normalise else text
        return Cleaned(text, None, {}, "unknown")
