"""The section `cleaning` of a dataset: how texts are normalised and masked, and which documents are left out."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from slipway.recipes.filters import ClassifierSection, LinesSection, OwnRules, UrlsSection, checked_own_rules
from slipway.recipes.parts import Count, RecipeSection, Text, absolute
from slipway.trainer.base.invalid import Invalid, require

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Occurrences = Annotated[int, Field(ge=0)]
MaskKind = Literal["email", "ip", "phone", "card", "iban", "secret"]


class RulesSection(RecipeSection):
    """Quality rules, each with its threshold, or null to turn the rule off. A document that breaks a rule is left out.

    The rules are tested in this order, and the first broken rule is the recorded reason. docs/cleaning.md explains what
    each rule measures and which value its source uses. A preset turns on the rules of its source with their values. A
    rule that the recipe sets itself replaces the preset's, and null turns the preset's rule off.
    """

    preset: Literal["gopher", "c4", "fineweb", "code"] | None = None
    """The source whose rules apply: Gopher, C4, FineWeb (which combines both with its own), or StarCoder for code."""
    words_at_least: Count | None = None
    """The fewest words between white space; Gopher uses 50."""
    words_at_most: Count | None = None
    """The most words between white space; Gopher uses 100,000."""
    curly_brackets_at_most: Occurrences | None = None
    """The most opening curly brackets; C4 uses 0."""
    lorem_ipsum_at_most: Occurrences | None = None
    """The most occurrences of "lorem ipsum", in capitals or not; C4 uses 0."""
    symbols_per_word_at_most: Positive | None = None
    """The most hash signs, or ellipses, per word; Gopher uses 0.1."""
    mean_word_length_at_least: Positive | None = None
    """The smallest mean number of characters in a word; Gopher uses 3."""
    mean_word_length_at_most: Positive | None = None
    """The largest mean number of characters in a word; Gopher uses 10."""
    alphabetic_words_at_least: Share | None = None
    """The smallest share of words with a letter; Gopher uses 0.8."""
    bullet_lines_at_most: Share | None = None
    """The largest share of lines that begin with a bullet; Gopher uses 0.9."""
    ellipsis_lines_at_most: Share | None = None
    """The largest share of lines that end in an ellipsis; Gopher uses 0.3."""
    punctuated_lines_at_least: Share | None = None
    """The smallest share of lines that end in sentence punctuation; FineWeb uses 0.12."""
    short_lines_at_most: Share | None = None
    """The largest share of lines of at most 30 characters; FineWeb uses 0.67."""
    duplicate_lines_at_most: Share | None = None
    """The largest share of lines that repeat an earlier line; Gopher uses 0.3."""
    duplicate_paragraphs_at_most: Share | None = None
    """The largest share of paragraphs that repeat an earlier one; Gopher uses 0.3."""
    duplicate_line_characters_at_most: Share | None = None
    """The largest share of the text in lines that repeat an earlier line; Gopher uses 0.2, FineWeb 0.01."""
    duplicate_paragraph_characters_at_most: Share | None = None
    """The largest share of the text in paragraphs that repeat an earlier one; Gopher uses 0.2."""
    newlines_per_word_at_most: Positive | None = None
    """The most newlines per word, because lists have many; FineWeb uses 0.3."""
    mean_line_length_at_most: Positive | None = None
    """The largest mean number of characters in a line; StarCoder uses 100."""
    longest_line_at_most: Count | None = None
    """The most characters in a line; StarCoder uses 1,000."""
    alphabetic_characters_at_least: Share | None = None
    """The smallest share of characters that are letters; StarCoder uses 0.25."""
    sentences_at_least: Count | None = None
    """The fewest sentences; C4 uses 5."""
    stop_words_at_least: Annotated[int, Field(ge=1, le=8)] | None = None
    """The fewest of eight stop words of the document's language; Gopher uses 2."""
    top_2gram_at_most: Share | None = None
    """The largest share of the text in its most frequent pair of words; Gopher uses 0.2."""
    top_3gram_at_most: Share | None = None
    """The same for three words; Gopher uses 0.18."""
    top_4gram_at_most: Share | None = None
    """The same for four words; Gopher uses 0.16."""
    duplicate_5grams_at_most: Share | None = None
    """The largest share of the text in runs of five words that repeat an earlier run; Gopher uses 0.15."""
    duplicate_6grams_at_most: Share | None = None
    """The same for six words; Gopher uses 0.14."""
    duplicate_7grams_at_most: Share | None = None
    """The same for seven words; Gopher uses 0.13."""
    duplicate_8grams_at_most: Share | None = None
    """The same for eight words; Gopher uses 0.12."""
    duplicate_9grams_at_most: Share | None = None
    """The same for nine words; Gopher uses 0.11."""
    duplicate_10grams_at_most: Share | None = None
    """The same for ten words; Gopher uses 0.1."""

    @model_validator(mode="after")
    def _leave_something(self) -> Self:
        """A lower limit above the upper limit of the same measure would leave out every document."""
        limits = self.thresholds()
        for name, most in limits.items():
            fewest = limits.get(name.replace("_at_most", "_at_least"), most)
            if fewest > most:
                if name in self.model_fields_set:
                    raise Invalid(name, f"expected {fewest:g} or more: the lower limit is {fewest:g}")
                lower = name.replace("_at_most", "_at_least")
                raise Invalid(lower, f"expected {most:g} or less: the upper limit is {most:g}")
        return self

    def thresholds(self) -> dict[str, float]:
        """The thresholds of all active rules, including the preset's, in the order in which the rules are tested."""
        chosen: dict[str, Any] = dict(PRESETS[self.preset]) if self.preset else {}
        chosen |= {name: getattr(self, name) for name in self.model_fields_set}
        return {name: chosen[name] for name in RULE_NAMES if chosen.get(name) is not None}


RULE_NAMES = tuple(name for name in RulesSection.model_fields if name != "preset")
"""Every rule, in the order in which they are tested."""

GOPHER: Mapping[str, float] = {
    "words_at_least": 50,
    "words_at_most": 100_000,
    "symbols_per_word_at_most": 0.1,
    "mean_word_length_at_least": 3,
    "mean_word_length_at_most": 10,
    "alphabetic_words_at_least": 0.8,
    "bullet_lines_at_most": 0.9,
    "ellipsis_lines_at_most": 0.3,
    "duplicate_lines_at_most": 0.3,
    "duplicate_paragraphs_at_most": 0.3,
    "duplicate_line_characters_at_most": 0.2,
    "duplicate_paragraph_characters_at_most": 0.2,
    "stop_words_at_least": 2,
    "top_2gram_at_most": 0.2,
    "top_3gram_at_most": 0.18,
    "top_4gram_at_most": 0.16,
    "duplicate_5grams_at_most": 0.15,
    "duplicate_6grams_at_most": 0.14,
    "duplicate_7grams_at_most": 0.13,
    "duplicate_8grams_at_most": 0.12,
    "duplicate_9grams_at_most": 0.11,
    "duplicate_10grams_at_most": 0.1,
}
"""Gopher (Rae et al. 2021, arXiv 2112.11446): the limits on repetition in its table A1, and its quality rules."""
C4: Mapping[str, float] = {"curly_brackets_at_most": 0, "lorem_ipsum_at_most": 0, "sentences_at_least": 5}
"""The rules of C4 (Raffel et al. 2020, JMLR 21) that judge a whole page; those for lines are in `LinesSection`."""
FINEWEB: Mapping[str, float] = {
    **GOPHER,
    **C4,
    "punctuated_lines_at_least": 0.12,
    "short_lines_at_most": 0.67,
    "duplicate_line_characters_at_most": 0.01,
    "newlines_per_word_at_most": 0.3,
}
"""FineWeb (Penedo et al. 2024, arXiv 2406.17557): Gopher's rules, C4's, and its own."""
CODE: Mapping[str, float] = {
    "mean_line_length_at_most": 100,
    "longest_line_at_most": 1000,
    "alphabetic_characters_at_least": 0.25,
}
"""StarCoder (Li et al. 2023, arXiv 2305.06161, 3.1): the rules leave out files that nobody wrote by hand."""
CLASSIFIER = "classifier_at_least"
"""The name of the classifier's score, and the reason that is recorded for a document whose score is too low."""
PRESETS: Mapping[str, Mapping[str, float]] = {"gopher": GOPHER, "c4": C4, "fineweb": FINEWEB, "code": CODE}


class NearDuplicatesSection(RecipeSection):
    """Near-duplicates: of documents that share nearly all of their text, only one is kept (MinHash with LSH)."""

    similarity: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Two documents are near-duplicates if the Jaccard similarity of their word 5-grams (0 to 1) is at least this."""


class EvaluationSetSection(RecipeSection):
    """A file of evaluation texts. It is read like the files of a source."""

    file: Text
    """The path of the file; a relative path starts at the recipe's folder."""
    fields: Annotated[tuple[Text, ...], Field(min_length=1)] = ("text",)
    """The fields of a JSON object, or the columns of a table, such as `question`; each text in them is one item."""

    @field_validator("file")
    @classmethod
    def _from_the_recipe(cls, file: str, info: ValidationInfo) -> str:
        return absolute(file, info)


def _by_its_file(value: Any) -> Any:
    """Accept a path alone for the evaluation set in that file. Lists become tuples, as the strict model expects."""
    if isinstance(value, str):
        return {"file": value}
    if isinstance(value, dict):
        return {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
    return value


class DecontaminationSection(RecipeSection):
    """Decontamination: a training document is left out if it shares a passage of 13 or more words with an evaluation
    text, or if it contains a shorter evaluation text as a whole."""

    against: tuple[Annotated[EvaluationSetSection, BeforeValidator(_by_its_file)], ...] = ()
    """Evaluation sets besides the validation split, each as the path of a file, or as `file` and `fields`."""
    shortest: Annotated[int, Field(ge=5)] = 6
    """Items of an evaluation set with at least this many words are searched for as a whole, however many documents
    contain them. Items of 10 or more words also match with one word changed."""
    validation: bool = False
    """Whether passages shared with the dataset's own validation split count too. Pages of one site or one manual share
    many passages. Near-duplicates of validation documents are always left out."""
    common: Count = 10
    """A passage in more training documents than this is boilerplate, such as a licence, and does not count."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """If a training document shares at least this part of a held-out document (0 to 1), boilerplate counts as well."""


class CleaningSection(RecipeSection):
    """How texts are cleaned before they are compared and encoded."""

    normalize: bool = True
    """Whether to convert texts to Unicode NFC and plain newlines, without control characters but tab and newline."""
    languages: tuple[Text, ...] = ()
    """The languages whose documents are kept, such as `en` or `python`; empty for all. docs/cleaning.md says how the
    language of a document is found."""
    urls: UrlsSection = UrlsSection()
    licenses: tuple[Text, ...] = ()
    """The licences whose documents are kept, as patterns in which `*` matches anything; empty for all. If the list is
    not empty, documents without a licence (`reading.metadata.license`) are left out."""
    lines: LinesSection = LinesSection()
    rules: RulesSection = RulesSection()
    own_rules: OwnRules = Field(default={})
    """Your own rules: Python files, by the name of the function in each that decides whether to keep a document."""
    classifier: ClassifierSection | None = None
    mask: tuple[MaskKind, ...] = ()
    """The kinds of personal data that a placeholder replaces: `email`, `ip`, `phone`, `card`, `iban`, and `secret` for
    keys, tokens and passwords."""
    patterns: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,31}$")], Text] = Field(default={})
    """Your own regular expressions, by name. The placeholder `<NAME>` replaces each match."""
    kept_duplicate: Literal["first", "longest", "newest"] = "first"
    """Which of several equal or nearly equal documents is kept: the first by file name, the longest, or the newest by
    `reading.metadata.date`. A held-out document always comes before the others."""
    near_duplicates: NearDuplicatesSection | None = NearDuplicatesSection()
    decontamination: DecontaminationSection | None = DecontaminationSection()

    @field_validator("own_rules")
    @classmethod
    def _define_functions(cls, rules: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for name in rules:
            require(name not in RULE_NAMES, name, "expected another name: Slipway has a rule of this name")
        return checked_own_rules(rules, info)

    def thresholds(self) -> dict[str, float]:
        """The limits of all measures of a document: the active rules, and the classifier's score."""
        of_classifier = {CLASSIFIER: self.classifier.at_least} if self.classifier else {}
        return self.rules.thresholds() | of_classifier

    def content(self) -> dict[str, Any]:
        """The section as JSON, without the paths of files: their contents count, not where they are."""
        content = self.model_dump(mode="json", exclude={"classifier": {"file"}, "urls": {"file"}})
        content["own_rules"] = sorted(self.own_rules)
        if content["decontamination"]:
            content["decontamination"].pop("against")
        return content

    @field_validator("patterns")
    @classmethod
    def _are_patterns(cls, patterns: dict[str, str]) -> dict[str, str]:
        for name, pattern in patterns.items():
            require(name not in get_args(MaskKind), name, "expected another name: there is a mask of this name")
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise Invalid(name, f"expected a regular expression of Python: {error.msg}") from None
            require(not compiled.fullmatch(""), name, "expected an expression that does not match the empty text")
        return patterns
