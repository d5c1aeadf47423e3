"""The cleaner: takes one document through normalisation, rules and masks to the features of what is left."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from assets.datasets.cleaning import minhash, ngrams, pii, rules
from assets.datasets.cleaning.language import language_of
from assets.datasets.cleaning.normalise import normalise
from assets.datasets.cleaning.statistics import Statistics
from recipes.cleaning import Cleaning

VERSION = f"1, Unicode {unicodedata.unidata_version}"
"""Changes when the same document and recipe may give another result: with this code, and with Python's Unicode."""


@dataclass(frozen=True)
class Cleaned:
    """A document after cleaning. Features are None where the recipe does not need them, or if it is removed."""

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
        self._thresholds = rules.thresholds(cleaning.rules)

    def clean(self, name: str, text: str) -> Cleaned:
        """`name` is the document's, as its source has it: its suffix tells source code from prose."""
        text = normalise(text) if self._cleaning.normalise else text
        language, statistics = language_of(name, text), Statistics(text)
        removed = rules.first_broken(statistics, self._thresholds)
        if removed is not None:
            return Cleaned(text, removed, {}, language)
        text, masked = pii.mask(text, self._cleaning.mask)
        if masked:
            statistics = Statistics(text)
        signature = minhash.of_words(statistics.words) if self._cleaning.near_duplicates else None
        bands = minhash.bands(signature) if signature is not None else None
        fingerprints = ngrams.winnowed(statistics.words) if self._cleaning.decontamination else None
        return Cleaned(text, None, masked, language, signature, bands, fingerprints)
