"""Line rules: what each leaves out, and that datatrove's filter leaves out the same."""

from pathlib import Path

import pytest
from datatrove.data import Document
from datatrove.pipeline.filters.c4_filters import C4QualityFilter
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.cleaning import rules
from slipway.assets.datasets.cleaning.cleaner import Cleaner
from slipway.assets.datasets.cleaning.statistics import TextStatistics
from slipway.recipes.cleaning import C4, CleaningSection
from slipway.recipes.filters import LinesSection

pytestmark = pytest.mark.pure

C4_SETTINGS = LinesSection(preset="c4").settings()
PARTS = (
    *("This is", "a line", "of text", "See the", "two", "Please enable JavaScript", "Terms of Use", "we use cookies"),
    *("[3]", "[edit]", "[citation needed]", "lorem ipsum", "{", "x" * 1001, "  "),
    *(".", "!", "?", '."', "...", "…", "\n", "\n\n", "\r\n", "'"),
)
TEXTS = st.lists(st.sampled_from(PARTS), max_size=40).map(" ".join)


def lines_of_datatrove(text: str, ended: bool) -> str | None:
    """The text that datatrove keeps, or None; without the count of sentences, for which it needs a model."""
    document = Document(text=text, id="")
    passes = C4QualityFilter(min_num_sentences=-1, filter_no_terminal_punct=ended).filter(document)
    return document.text if passes is True else None


def lines_of_slipway(text: str, settings: LinesSection) -> str | None:
    """The text that is kept here by C4's rules, but for the count of sentences; or None."""
    remaining = rules.kept_lines(text, settings.settings())
    thresholds = {name: value for name, value in C4.items() if name != "sentences_at_least"}
    return None if rules.first_broken(rules.measures(TextStatistics(remaining), thresholds), thresholds) else remaining


@given(TEXTS, st.booleans())
def test_the_lines_that_stay_are_those_of_datatrove(text: str, ended: bool):
    expected = lines_of_datatrove(text, ended)
    actual = lines_of_slipway(text, LinesSection(preset="c4" if ended else "fineweb"))
    if expected is not None:
        assert actual == expected
    elif actual is not None:  # theirs asks for brackets before policies, and for "lorem ipsum" before scripts
        left_out = [line for line in text.lower().splitlines() if "{" in line or "lorem ipsum" in line]
        assert any(phrase in line for line in left_out for phrase in LinesSection(preset="c4").settings()["without"])


def test_on_the_documentation_of_this_project_they_are_those_of_datatrove():
    texts = [page.read_text() for page in sorted((Path(__file__).parents[4] / "docs").glob("*.md"))]
    texts = [text.replace("{", "(") for text in texts]
    actual = [lines_of_slipway(text, LinesSection(preset="c4")) for text in texts]
    assert actual == [lines_of_datatrove(text, True) for text in texts]
    assert all(remaining and len(remaining) < len(text) for remaining, text in zip(actual, texts, strict=True))


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("Three words here.", True),
        ("Two words.", False),
        ("No mark at its end", False),
        ("It goes on and on...", False),
        ("これ は 文 です。", True),
        ("Please enable JAVASCRIPT to read on.", False),
        ("By this you accept our Privacy Policy.", False),
        ("x" * 1001 + " is a word.", False),
    ],
)
def test_each_rule_leaves_out_its_lines(line: str, stays: bool):
    assert rules.kept_lines(f"Before it is text.\n{line}", C4_SETTINGS) == "Before it is text." + f"\n{line}" * stays


def test_citations_go_and_their_line_stays():
    assert (
        rules.kept_lines("As was shown there[12] before.[citation needed]", C4_SETTINGS) == "As was shown there before."
    )


def test_a_field_beside_a_preset_replaces_the_presets():
    assert rules.kept_lines("Two words.", LinesSection(preset="c4", words_at_least=2).settings()) == "Two words."


def test_without_a_rule_a_text_stays_as_it_is():
    assert rules.kept_lines(" a \r\n\n b\x0c", LinesSection().settings()) == " a \r\n\n b\x0c"


def test_the_rules_judge_the_lines_that_stay_and_a_document_without_any_is_left_out():
    cleaner = Cleaner(CleaningSection.model_validate({"lines": {"preset": "c4"}, "rules": {"words_at_most": 4}}))
    assert cleaner.clean("a", "Menu\nThis line is kept.\nAll rights reserved").text == "This line is kept."
    assert cleaner.clean("a", "Menu\nAll rights reserved").removed == rules.LINES
