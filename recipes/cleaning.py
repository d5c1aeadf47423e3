"""How documents are cleaned: what is rewritten, what is masked, and what is left out, each with its threshold."""

from typing import Annotated, Literal

from pydantic import Field

from recipes.parts import Count, Part, Text

Share = Annotated[float, Field(ge=0, le=1)]


class Rules(Part):
    """Quality rules, each off (null) or with its threshold; a document that breaks one is left out."""

    words_at_least: Count | None = None


class NearDuplicates(Part):
    """Documents that share nearly all of their text are left out, all but the first (MinHash with LSH)."""

    similarity: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Jaccard similarity of word 5-grams from which two documents count as one."""


class Decontamination(Part):
    """Training documents that share a passage with what models are measured on are left out."""

    against: tuple[Text, ...] = ()
    """Files of evaluation sets besides the validation split, relative to the recipe; read as sources are."""


class Cleaning(Part):
    normalise: bool = True
    """Unicode NFC, and no control characters but tabs and newlines."""
    rules: Rules = Rules()
    mask: tuple[Literal["email", "ip", "secret"], ...] = ()
    """What is replaced by a placeholder: addresses, and tokens that look like secrets."""
    near_duplicates: NearDuplicates | None = NearDuplicates()
    decontamination: Decontamination | None = Decontamination()
