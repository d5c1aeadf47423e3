"""Quality rules: measures of a text, by which the text is kept, and rules by which its lines are kept.

A measure has the name of its recipe field: `..._at_least` keeps a text that reaches the threshold, `..._at_most` a text
that does not exceed it. Sources: Gopher is Rae et al. 2021 (arXiv 2112.11446, A1.1), C4 is Raffel et al. 2020 (JMLR 21,
2.2), FineWeb is Penedo et al. 2024 (arXiv 2406.17557, 3.6), StarCoder is Li et al. 2023 (arXiv 2305.06161, 3.1). The
value in a docstring is the one that its source uses. The runs of words are measured as datatrove measures them, which
made FineWeb: on the same pieces of a text the decisions are the same (tests/assets/datasets/cleaning/test_rules.py).

Lines are kept as C4 keeps them. A page of the web has sentences between menus, forms and notices, and lines tell them
apart. The order of the rules is that of datatrove's `C4QualityFilter`, which follows the code of C4 (c4_utils.py of
TensorFlow Datasets): on the same text the same lines stay (tests/assets/datasets/cleaning/test_lines.py). Other
scripts' marks end a sentence too.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from slipway.assets.datasets.cleaning.statistics import TextStatistics
from slipway.recipes.cleaning import RULE_NAMES
from slipway.trainer.base.characters import TERMINALS

LINES = "lines"
"""The reason that is recorded for a document that has no line left."""
CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")
"""Wikipedia's marks, as C4's code removes them."""
ENDS = tuple(TERMINALS - {"…"})
ELLIPSES = ("...", "…")


def words_at_least(text: TextStatistics) -> float:
    """Words between white space: enough of them. Gopher: 50."""
    return text.tokens


def words_at_most(text: TextStatistics) -> float:
    """Words between white space: not too many. Gopher: 100,000."""
    return text.tokens


def curly_brackets_at_most(text: TextStatistics) -> float:
    """Opening curly brackets: most natural language has none, program text has. C4: 0."""
    return text.text.count("{")


def lorem_ipsum_at_most(text: TextStatistics) -> float:
    """Occurrences of "lorem ipsum", in capitals or not: a page that is not filled in. C4: 0."""
    return text.text.lower().count("lorem ipsum")


def symbols_per_word_at_most(text: TextStatistics) -> float:
    """Hash signs, or ellipses, for each word between white space. Gopher: 0.1."""
    return text.symbols_per_token


def mean_word_length_at_least(text: TextStatistics) -> float:
    """Characters in a word between white space, on average. Gopher: 3."""
    return text.mean_token_length


def mean_word_length_at_most(text: TextStatistics) -> float:
    """Characters in a word between white space, on average. Gopher: 10."""
    return text.mean_token_length


def alphabetic_words_at_least(text: TextStatistics) -> float:
    """The share of words between white space with a letter in them. Gopher: 0.8."""
    return text.alphabetic_tokens


def bullet_lines_at_most(text: TextStatistics) -> float:
    """The share of lines that begin with a bullet. Gopher: 0.9."""
    return text.bullet_lines


def ellipsis_lines_at_most(text: TextStatistics) -> float:
    """The share of lines that end in an ellipsis. Gopher: 0.3."""
    return text.ellipsis_lines


def punctuated_lines_at_least(text: TextStatistics) -> float:
    """The share of lines that end as sentences do. FineWeb: 0.12."""
    return text.punctuated_lines


def short_lines_at_most(text: TextStatistics) -> float:
    """The share of lines of at most 30 characters. FineWeb: 0.67."""
    return text.short_lines


def duplicate_lines_at_most(text: TextStatistics) -> float:
    """The share of lines that repeat an earlier line. Gopher: 0.3."""
    return text.duplicate_lines


def duplicate_paragraphs_at_most(text: TextStatistics) -> float:
    """The share of paragraphs that repeat an earlier one. Gopher: 0.3."""
    return text.duplicate_paragraphs


def duplicate_line_characters_at_most(text: TextStatistics) -> float:
    """The share of characters in lines that repeat an earlier line. Gopher: 0.2. FineWeb: 0.01."""
    return text.duplicate_line_characters


def duplicate_paragraph_characters_at_most(text: TextStatistics) -> float:
    """The share of characters in paragraphs that repeat an earlier one. Gopher: 0.2."""
    return text.duplicate_paragraph_characters


def newlines_per_word_at_most(text: TextStatistics) -> float:
    """Newlines for each word or mark of punctuation: a list has many. FineWeb: 0.3."""
    return text.newlines_per_word


def mean_line_length_at_most(text: TextStatistics) -> float:
    """Characters in a line, on average: data in a file of source code has long lines. StarCoder: 100."""
    return text.mean_line_length


def longest_line_at_most(text: TextStatistics) -> float:
    """Characters in the longest line: minified code has very long lines. StarCoder: 1,000."""
    return text.longest_line


def alphabetic_characters_at_least(text: TextStatistics) -> float:
    """The share of characters that are letters: tables of numbers have few. StarCoder: 0.25."""
    return text.alphabetic_characters


def sentences_at_least(text: TextStatistics) -> float:
    """Sentences: a page of prose has some. C4: 5."""
    return text.sentences


def stop_words_at_least(text: TextStatistics) -> float | None:
    """How many of eight stop words of the text's language occur, in English the, be, to, of, and, that, have, with;
    None for a language without a list of them, which this rule does not judge. Gopher: 2."""
    return text.stop_words


def top_2gram_at_most(text: TextStatistics) -> float:
    """The share of characters in the most frequent pair of words. Gopher: 0.2."""
    return text.top_gram(2)


def top_3gram_at_most(text: TextStatistics) -> float:
    """The share of characters in the most frequent run of three words. Gopher: 0.18."""
    return text.top_gram(3)


def top_4gram_at_most(text: TextStatistics) -> float:
    """The share of characters in the most frequent run of four words. Gopher: 0.16."""
    return text.top_gram(4)


def duplicate_5grams_at_most(text: TextStatistics) -> float:
    """The share of characters in runs of five words that repeat an earlier run. Gopher: 0.15."""
    return text.duplicate_grams(5)


def duplicate_6grams_at_most(text: TextStatistics) -> float:
    """The same for runs of six words. Gopher: 0.14."""
    return text.duplicate_grams(6)


def duplicate_7grams_at_most(text: TextStatistics) -> float:
    """The same for runs of seven words. Gopher: 0.13."""
    return text.duplicate_grams(7)


def duplicate_8grams_at_most(text: TextStatistics) -> float:
    """The same for runs of eight words. Gopher: 0.12."""
    return text.duplicate_grams(8)


def duplicate_9grams_at_most(text: TextStatistics) -> float:
    """The same for runs of nine words. Gopher: 0.11."""
    return text.duplicate_grams(9)


def duplicate_10grams_at_most(text: TextStatistics) -> float:
    """The same for runs of ten words. Gopher: 0.1."""
    return text.duplicate_grams(10)


RULES: Mapping[str, Callable[[TextStatistics], float | None]] = {name: globals()[name] for name in RULE_NAMES}
"""The measure of each rule by name, in the order of the tests: cheap rules first."""


def keeps(name: str, measure: float, threshold: float) -> bool:
    """Whether a rule keeps a text of this measure."""
    if name.endswith("_at_least"):
        return measure >= threshold
    return measure <= threshold


def measures(text: TextStatistics, rules: Mapping[str, float]) -> dict[str, float]:
    """The measures of these rules, without rules that do not apply to the text."""
    measured = {name: RULES[name](text) for name in rules}
    return {name: measure for name, measure in measured.items() if measure is not None}


def first_broken(measures: Mapping[str, float], rules: Mapping[str, float]) -> str | None:
    """The name of the first of these rules that a text of these measures breaks, or None."""
    measured = ((name, threshold) for name, threshold in rules.items() if name in measures)
    return next((name for name, threshold in measured if not keeps(name, measures[name], threshold)), None)


def kept_lines(text: str, settings: Mapping[str, Any]) -> str:
    """The lines that are kept, each without the white space around it. `settings` are those of `LinesSection`.

    Settings without an entry keep the text as it is.
    """
    if not settings:
        return text
    lines = (_kept_line(line.strip(), settings) for line in text.splitlines())
    return "\n".join(line for line in lines if line is not None).strip()


def _kept_line(line: str, settings: Mapping[str, Any]) -> str | None:
    """The line without citations, or None for one that is left out."""
    line_words = line.split()
    longest = settings["longest_word_at_most"]
    if longest is not None and any(len(word) > longest for word in line_words):
        return None
    if not settings["citations"]:
        line = CITATION.sub("", line)
    if settings["ended"] and (not line.endswith(ENDS) or line.endswith(ELLIPSES)):
        return None
    if len(line_words) < (settings["words_at_least"] or 0):
        return None
    low = line.lower()
    if any(phrase.lower() in low for phrase in settings["without"]):
        return None
    return line
