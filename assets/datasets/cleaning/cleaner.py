"""The cleaner: normalises one document, applies rules and masks, and computes the features of the result."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import numpy as np
import numpy.typing as npt

from slipway.assets.datasets.cleaning import minhash, origins, own_rules, pii, rules, word_hashes
from slipway.assets.datasets.cleaning.language import language_of
from slipway.assets.datasets.cleaning.normalize import normalize
from slipway.assets.datasets.cleaning.origins import Origins
from slipway.assets.datasets.cleaning.own_rules import RuledDocument, TextClassifier
from slipway.assets.datasets.cleaning.statistics import TextStatistics
from slipway.assets.datasets.reading.document import NOTHING, About
from slipway.recipes.cleaning import CLASSIFIER, CleaningSection
from slipway.trainer.base import atomic, digest

VERSION = f"6, Unicode {unicodedata.unidata_version}, libphonenumber {metadata.version('phonenumbers')}"
"""The version of this code, of Python's Unicode and of the telephone numbering plans, all of which affect results."""
LANGUAGE = "language"
"""The reason that is recorded for a document in a language that the recipe does not keep."""


@dataclass(frozen=True)
class Cleaned:
    """A document after cleaning. Features are None if the recipe does not need them or the document is removed."""

    text: str
    removed: str | None
    """The reason to leave it out: the first rule that it breaks, LANGUAGE, LINES, URL or LICENCE; None if it is
    kept."""
    masked: Mapping[str, int]
    """The number of masked places by kind; kinds without one are absent."""
    language: str
    measures: Mapping[str, float] = field(default_factory=dict)
    """The measure of each rule of the recipe, before masking; empty for a language that is left out."""
    signature: npt.NDArray[np.uint32] | None = field(default=None, compare=False)
    """MinHash of the word 5-grams, for near-duplicates."""
    bands: npt.NDArray[np.uint64] | None = field(default=None, compare=False)
    """The signature's bands; empty for a text without a word."""
    fingerprints: npt.NDArray[np.uint64] | None = field(default=None, compare=False)
    """Winnowed fingerprints of the word 8-grams, ascending, each once, for decontamination."""


class Cleaner:
    """Cleans documents by a recipe. It is pure: the same document gives the same result in every process."""

    def __init__(self, cleaning: CleaningSection) -> None:
        self._cleaning = cleaning
        self._thresholds = cleaning.rules.thresholds()
        self._origins = Origins(cleaning.urls, cleaning.licenses)
        self._lines = cleaning.lines.settings()
        self._own_rules = own_rules.load(cleaning.own_rules)
        self._classifier = TextClassifier(cleaning.classifier) if cleaning.classifier else None

    def clean(self, name: str, text: str, about: About = NOTHING) -> Cleaned:
        """Clean a document. The suffix of `name`, its path in the source, distinguishes source code from prose.

        Raises ValueError, with rule and document, if one of the user's own rules fails.
        """
        text = normalize(text) if self._cleaning.normalize else text
        blocked = self._origins.why_not(about)
        text = rules.kept_lines(text, self._lines)
        language = language_of(name, text)
        if blocked is not None or (self._lines and not text):
            return Cleaned(text, blocked or rules.LINES, {}, language)
        if self._cleaning.languages and language not in self._cleaning.languages:
            return Cleaned(text, LANGUAGE, {}, language)
        statistics = TextStatistics(text, language)
        removed, measures = self._judged(statistics, RuledDocument(name, text, language, *about))
        if removed is not None:
            return Cleaned(text, removed, {}, language, measures)
        text, masked = pii.mask(text, self._cleaning.mask, self._cleaning.patterns)
        if masked:
            statistics = TextStatistics(text)
        near = self._cleaning.near_duplicates
        signature = minhash.of_words(statistics.word_hashes) if near else None
        bands = minhash.bands(signature, near.similarity) if near and signature is not None else None
        fingerprints = word_hashes.winnowed(statistics.word_hashes) if self._cleaning.decontamination else None
        return Cleaned(text, None, masked, language, measures, signature, bands, fingerprints)

    def _judged(self, statistics: TextStatistics, document: RuledDocument) -> tuple[str | None, dict[str, float]]:
        """The first broken rule, if any, and the measures; the cheapest rules come first."""
        measures = rules.measures(statistics, self._thresholds)
        removed = rules.first_broken(measures, self._thresholds)
        removed = removed or own_rules.first_broken(self._own_rules, document)
        if removed is None and self._classifier is not None:
            measures[CLASSIFIER] = self._classifier.score(document.text)
            removed = rules.first_broken(measures, {CLASSIFIER: self._classifier.at_least})
        return removed, measures


def files_of(cleaning: CleaningSection) -> list[str]:
    """The BLAKE3 of each file that a recipe's cleaning names, except evaluation sets, which do not affect rows.

    Raises ValueError, with field and file, for an unreadable file.
    """
    listed = origins.listed(Path(cleaning.urls.file)) if cleaning.urls.file else []
    of_rules = [own_rules.digest_of_rule(name, file) for name, file in sorted(cleaning.own_rules.items())]
    of_model = [own_rules.digest_of_model(cleaning.classifier)] if cleaning.classifier else []
    return [digest.of_bytes(atomic.canonical_json(listed)), *of_rules, *of_model]
