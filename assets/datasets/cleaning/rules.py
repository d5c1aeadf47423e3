"""Quality rules: each decides by a text's statistics whether the text is kept, and has the name of its recipe field.

`..._at_least` keeps a text that reaches the threshold, `..._at_most` a text that does not exceed it. Sources: Gopher is
Rae et al. 2021 (arXiv 2112.11446, A1.1), C4 is Raffel et al. 2020 (JMLR 21, 2.2), FineWeb is Penedo et al. 2024 (arXiv
2406.17557, 3.6). The value in a docstring is the one that its source uses.
"""

from assets.datasets.cleaning.statistics import TextStatistics
from recipes.cleaning import RulesSection


def words_at_least(text: TextStatistics, least: int) -> bool:
    """Words between white space: enough of them. Gopher: 50."""
    return text.tokens >= least


def words_at_most(text: TextStatistics, most: int) -> bool:
    """Words between white space: not too many. Gopher: 100,000."""
    return text.tokens <= most


def curly_brackets_at_most(text: TextStatistics, most: int) -> bool:
    """Opening curly brackets: most natural language has none, program text has. C4: 0."""
    return text.text.count("{") <= most


def lorem_ipsum_at_most(text: TextStatistics, most: int) -> bool:
    """Occurrences of "lorem ipsum", in capitals or not: a page that is not filled in. C4: 0."""
    return text.text.lower().count("lorem ipsum") <= most


def symbols_per_word_at_most(text: TextStatistics, most: float) -> bool:
    """Hash signs, or ellipses, for each word between white space. Gopher: 0.1."""
    return text.symbols_per_token <= most


def mean_word_length_at_least(text: TextStatistics, least: float) -> bool:
    """Characters in a word between white space, on average. Gopher: 3."""
    return text.mean_token_length >= least


def mean_word_length_at_most(text: TextStatistics, most: float) -> bool:
    """Characters in a word between white space, on average. Gopher: 10."""
    return text.mean_token_length <= most


def alphabetic_words_at_least(text: TextStatistics, least: float) -> bool:
    """The share of words between white space with a letter in them. Gopher: 0.8."""
    return text.alphabetic_tokens >= least


def bullet_lines_at_most(text: TextStatistics, most: float) -> bool:
    """The share of lines that begin with a bullet. Gopher: 0.9."""
    return text.bullet_lines <= most


def ellipsis_lines_at_most(text: TextStatistics, most: float) -> bool:
    """The share of lines that end in an ellipsis. Gopher: 0.3."""
    return text.ellipsis_lines <= most


def punctuated_lines_at_least(text: TextStatistics, least: float) -> bool:
    """The share of lines that end as sentences do. FineWeb: 0.12."""
    return text.punctuated_lines >= least


def short_lines_at_most(text: TextStatistics, most: float) -> bool:
    """The share of lines of at most 30 characters. FineWeb: 0.67."""
    return text.short_lines <= most


def duplicate_lines_at_most(text: TextStatistics, most: float) -> bool:
    """The share of lines that repeat an earlier line. Gopher: 0.3."""
    return text.duplicate_lines <= most


def duplicate_paragraphs_at_most(text: TextStatistics, most: float) -> bool:
    """The share of paragraphs that repeat an earlier one. Gopher: 0.3."""
    return text.duplicate_paragraphs <= most


def stop_words_at_least(text: TextStatistics, least: int) -> bool:
    """How many of the, be, to, of, and, that, have, with occur: English has some. Gopher: 2."""
    return text.stop_words >= least


def top_2gram_at_most(text: TextStatistics, most: float) -> bool:
    """The share of characters in the most frequent pair of words. Gopher: 0.2."""
    return text.top_gram(2) <= most


def duplicate_5grams_at_most(text: TextStatistics, most: float) -> bool:
    """The share of characters in runs of five words that occur more than once. Gopher: 0.15."""
    return text.duplicate_grams(5) <= most


RULES = {name: globals()[name] for name in RulesSection.model_fields}
"""Every rule by its name, in the order in which they are tested: cheap rules first."""


def thresholds(rules: RulesSection) -> dict[str, float]:
    """The rules that are on, with their thresholds, in the order in which they are tested."""
    return {name: threshold for name, threshold in rules if threshold is not None}


def first_broken(text: TextStatistics, rules: dict[str, float]) -> str | None:
    """The name of the first of these rules that the text breaks, or None."""
    return next((name for name, threshold in rules.items() if not RULES[name](text, threshold)), None)
