"""The cleaner: its stages, their order, and their results."""

import numpy as np
import numpy.typing as npt
import pytest

from slipway.assets.datasets.cleaning import minhash, word_hashes
from slipway.assets.datasets.cleaning.cleaner import Cleaner
from slipway.recipes.cleaning import CleaningSection, RulesSection

pytestmark = pytest.mark.pure

PROSE = "It is a truth universally acknowledged, that a single man in possession of a good fortune must want a wife."


def equal(actual: npt.NDArray[np.generic] | None, expected: npt.NDArray[np.generic]) -> bool:
    return actual is not None and np.array_equal(actual, expected)


def test_by_default_a_document_is_normalised_and_has_features():
    cleaned = Cleaner(CleaningSection()).clean("a.txt", PROSE + "\r\n\x00")
    assert (cleaned.text, cleaned.removed, cleaned.masked, cleaned.language) == (PROSE + "\n", None, {}, "en")
    assert equal(cleaned.signature, minhash.signature(PROSE))
    assert equal(cleaned.bands, minhash.bands(minhash.signature(PROSE), 0.8))
    assert equal(cleaned.fingerprints, word_hashes.fingerprints(PROSE))


def test_a_removed_document_has_the_name_of_the_rule_and_no_features():
    cleaned = Cleaner(CleaningSection(rules=RulesSection(words_at_least=50), mask=("email",))).clean(
        "a.py", "x@example.org"
    )
    assert (cleaned.removed, cleaned.language, cleaned.masked) == ("words_at_least", "python", {})
    assert cleaned.signature is cleaned.bands is cleaned.fingerprints is None


def test_rules_test_the_normalised_text_before_masking():
    rules = RulesSection(words_at_most=2, mean_word_length_at_least=10.0)
    cleaner = Cleaner(CleaningSection(rules=rules, mask=("email",)))
    assert cleaner.clean("a", "\x00 somebody@example.org somebody@example.org\r\n").removed is None


def test_features_are_those_of_the_masked_text():
    cleaner = Cleaner(CleaningSection(mask=("email",)))
    first, others = (cleaner.clean("a", f"{PROSE} {name}@example.org {PROSE}") for name in ("ann", "bob"))
    assert first.masked == {"email": 1} and first.text == others.text
    assert equal(first.signature, minhash.signature(first.text))
    assert equal(first.fingerprints, word_hashes.fingerprints(first.text))


def test_a_stage_that_is_off_does_nothing():
    off = CleaningSection(normalize=False, near_duplicates=None, decontamination=None)
    cleaned = Cleaner(off).clean("a", "x@example.org\r\n" + PROSE)
    assert cleaned.text == "x@example.org\r\n" + PROSE
    assert cleaned.signature is cleaned.bands is cleaned.fingerprints is None


def test_an_empty_document_is_cleaned_like_any_other():
    cleaned = Cleaner(CleaningSection()).clean("a.txt", "")
    assert (cleaned.text, cleaned.removed, cleaned.language) == ("", None, "unknown")
    assert cleaned.bands is not None and len(cleaned.bands) == 0
    assert cleaned.fingerprints is not None and len(cleaned.fingerprints) == 0
