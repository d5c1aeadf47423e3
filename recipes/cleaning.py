"""The section `cleaning` of a dataset: what is rewritten, what is masked, and which documents are left out."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from recipes.parts import Count, RecipeSection, Text

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Occurrences = Annotated[int, Field(ge=0)]


class RulesSection(RecipeSection):
    """Quality rules, each with its threshold, or null for a rule that is off. A document that breaks one is left out.

    The rules are tested in this order, and the first broken rule is the reason. docs/cleaning.md explains what each
    rule measures, and which value its source uses.
    """

    words_at_least: Count | None = None
    """The fewest words between white space; Gopher uses 50."""
    words_at_most: Count | None = None
    """The most words between white space; Gopher uses 100,000."""
    curly_brackets_at_most: Occurrences | None = None
    """The most opening curly brackets; C4 uses 0."""
    lorem_ipsum_at_most: Occurrences | None = None
    """The most occurrences of "lorem ipsum", in capitals or not; C4 uses 0."""
    symbols_per_word_at_most: Positive | None = None
    """The most hash signs, or ellipses, for each word; Gopher uses 0.1."""
    mean_word_length_at_least: Positive | None = None
    """The smallest mean number of characters in a word; Gopher uses 3."""
    mean_word_length_at_most: Positive | None = None
    """The largest mean number of characters in a word; Gopher uses 10."""
    alphabetic_words_at_least: Share | None = None
    """The smallest share of words with a letter; Gopher uses 0.8."""
    bullet_lines_at_most: Share | None = None
    """The largest share of lines that begin with a bullet; Gopher uses 0.9."""
    ellipsis_lines_at_most: Share | None = None
    """The largest share of lines that end with an ellipsis; Gopher uses 0.3."""
    punctuated_lines_at_least: Share | None = None
    """The smallest share of lines that end with the mark of a sentence; FineWeb uses 0.12."""
    short_lines_at_most: Share | None = None
    """The largest share of lines of at most 30 characters; FineWeb uses 0.67."""
    duplicate_lines_at_most: Share | None = None
    """The largest share of lines that repeat an earlier line; Gopher uses 0.3."""
    duplicate_paragraphs_at_most: Share | None = None
    """The largest share of paragraphs that repeat an earlier one; Gopher uses 0.3."""
    stop_words_at_least: Annotated[int, Field(ge=1, le=8)] | None = None
    """The fewest of eight English stop words; Gopher uses 2."""
    top_2gram_at_most: Share | None = None
    """The largest share of the text in its most frequent pair of words; Gopher uses 0.2."""
    duplicate_5grams_at_most: Share | None = None
    """The largest share of the text in runs of five words that occur more than once; Gopher uses 0.15."""


class NearDuplicatesSection(RecipeSection):
    """Of documents that share nearly all of their text, all but the first are left out (MinHash with LSH)."""

    similarity: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """The Jaccard similarity of word 5-grams, between 0 and 1, from which on two documents count as near-duplicates."""


class DecontaminationSection(RecipeSection):
    """Training documents are left out that share a passage of 13 or more words with a validation or evaluation text."""

    against: tuple[Text, ...] = ()
    """The files of evaluation sets besides the validation split, read as a source's files are; a relative path starts
    at the recipe's folder."""
    common: Count = 10
    """A passage that is in more training documents than this is boilerplate, such as a licence, and does not count."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The share of a held-out document, between 0 and 1, from which on even boilerplate counts as shared."""

    @field_validator("against")
    @classmethod
    def _from_the_recipe(cls, against: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        folder = (info.context or {}).get("folder", Path.cwd())
        return tuple(str((folder / file).resolve()) for file in against)


class CleaningSection(RecipeSection):
    """How texts are cleaned before they are compared and encoded."""

    normalise: bool = True
    """Whether texts are brought to Unicode NFC, to plain newlines, and to no control characters but tab and newline."""
    rules: RulesSection = RulesSection()
    mask: tuple[Literal["email", "ip", "secret"], ...] = ()
    """The kinds of personal data that a placeholder replaces: addresses, and words that look like secrets."""
    near_duplicates: NearDuplicatesSection | None = NearDuplicatesSection()
    decontamination: DecontaminationSection | None = DecontaminationSection()
