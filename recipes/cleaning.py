"""How documents are cleaned: what is rewritten, what is masked, and what is left out, each with its threshold."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from recipes.parts import Count, Part, Text

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Occurrences = Annotated[int, Field(ge=0)]


class Rules(Part):
    """Quality rules, each off (null) or with its threshold; a document that breaks one is left out.

    They are asked in this order, and the first that is broken is the reason. docs/cleaning.md says what each
    measures, and which value its source uses.
    """

    words_at_least: Count | None = None
    words_at_most: Count | None = None
    curly_brackets_at_most: Occurrences | None = None
    lorem_ipsum_at_most: Occurrences | None = None
    symbols_per_word_at_most: Positive | None = None
    mean_word_length_at_least: Positive | None = None
    mean_word_length_at_most: Positive | None = None
    alphabetic_words_at_least: Share | None = None
    bullet_lines_at_most: Share | None = None
    ellipsis_lines_at_most: Share | None = None
    punctuated_lines_at_least: Share | None = None
    short_lines_at_most: Share | None = None
    duplicate_lines_at_most: Share | None = None
    duplicate_paragraphs_at_most: Share | None = None
    stop_words_at_least: Annotated[int, Field(ge=1, le=8)] | None = None
    top_2gram_at_most: Share | None = None
    duplicate_5grams_at_most: Share | None = None


class NearDuplicates(Part):
    """Documents that share nearly all of their text are left out, all but the first (MinHash with LSH)."""

    similarity: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Jaccard similarity of word 5-grams from which two documents count as one."""


class Decontamination(Part):
    """Training documents that share a passage of 13 words or more with what models are measured on are left out."""

    against: tuple[Text, ...] = ()
    """Files of evaluation sets besides the validation split, relative to the recipe; read as sources are."""
    common: Count = 10
    """A passage in more training documents than this is boilerplate, such as a licence: it counts for nothing..."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """...unless what is shared makes up this share of the held-out document, however often it leaked."""

    @field_validator("against")
    @classmethod
    def _from_the_recipe(cls, against: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        folder = (info.context or {}).get("folder", Path.cwd())
        return tuple(str((folder / file).resolve()) for file in against)


class Cleaning(Part):
    normalise: bool = True
    """Unicode NFC, lines that end in a newline alone, and no control characters but tabs and newlines."""
    rules: Rules = Rules()
    mask: tuple[Literal["email", "ip", "secret"], ...] = ()
    """What is replaced by a placeholder: addresses, and tokens that look like secrets."""
    near_duplicates: NearDuplicates | None = NearDuplicates()
    decontamination: Decontamination | None = Decontamination()
