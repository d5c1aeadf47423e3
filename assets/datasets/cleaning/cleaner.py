"""The cleaner: normalises one document, applies rules and masks, and computes the features of the result."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from assets.datasets.cleaning import minhash, ngrams, pii, rules
from assets.datasets.cleaning.language import language_of
from assets.datasets.cleaning.normalise import normalise
from assets.datasets.cleaning.statistics import TextStatistics
from recipes.cleaning import CleaningSection

VERSION = f"1, Unicode {unicodedata.unidata_version}"
"""The version of this code and of Python's Unicode: another version may give another result for the same document."""


@dataclass(frozen=True)
class Cleaned:
    """A document after cleaning. Features are None when the recipe does not need them or the document is removed."""

    text: str
    removed: str | None
    """The name of the first rule that the document breaks."""
    masked: Mapping[str, int]
    """The number of masked places by kind; kinds without one are absent."""
    language: str
    signature: npt.NDArray[np.uint32] | None = field(default=None, compare=False)
    """MinHash of the word 5-grams, for near-duplicates."""
    bands: npt.NDArray[np.uint64] | None = field(default=None, compare=False)
    """The signature's bands; empty for a text without a word."""
    fingerprints: npt.NDArray[np.uint64] | None = field(default=None, compare=False)
    """Winnowed fingerprints of the word 8-grams, ascending, each once, for decontamination."""


class Cleaner:
    """Cleans documents as a recipe says. It is pure: the same document gives the same result in every process."""

    def __init__(self, cleaning: CleaningSection) -> None:
        self._cleaning = cleaning
        self._thresholds = rules.thresholds(cleaning.rules)

    def clean(self, name: str, text: str) -> Cleaned:
        """The cleaned document. The suffix of `name`, the name in the source, tells source code from prose."""
        text = normalise(text) if self._cleaning.normalise else text
        language, statistics = language_of(name, text), TextStatistics(text)
        removed = rules.first_broken(statistics, self._thresholds)
        if removed is not None:
            return Cleaned(text, removed, {}, language)
        text, masked = pii.mask(text, self._cleaning.mask)
        if masked:
            statistics = TextStatistics(text)
        signature = minhash.of_words(statistics.words) if self._cleaning.near_duplicates else None
        bands = minhash.bands(signature) if signature is not None else None
        fingerprints = ngrams.winnowed(statistics.words) if self._cleaning.decontamination else None
        return Cleaned(text, None, masked, language, signature, bands, fingerprints)
