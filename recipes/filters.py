"""The parts of the section `cleaning` that leave out documents or lines without a threshold on a measure.

They judge where a document comes from, which of its lines are sentences, a classifier's score, and the user's rules.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from slipway.recipes.parts import Count, RecipeSection, Text, absolute, is_there
from slipway.trainer.base import regular_file
from slipway.trainer.base.invalid import Invalid, require

POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
"""Phrases in lines about a site's policies: the list in C4's own code (c4_utils.py of TensorFlow Datasets)."""


class UrlsSection(RecipeSection):
    """Leaves out documents by their URL: `reading.metadata.url`, or the URL of a page in a web archive."""

    blocked: tuple[Text, ...] = ()
    """Domains, which include their subdomains, and URLs, which include all longer URLs that continue with a slash."""
    file: Text | None = None
    """A file with more domains and URLs, one per line; `#` begins a comment. A relative path starts at the recipe's
    folder."""
    words: tuple[Text, ...] = ()
    """A document is left out if its URL contains one of these words. Any other character than a letter or digit
    separates words."""

    @field_validator("file")
    @classmethod
    def _from_the_recipe(cls, file: str | None, info: ValidationInfo) -> str | None:
        return None if file is None else absolute(file, info)


class LinesSection(RecipeSection):
    """Leaves out single lines of a document. A document that has no line left is left out too.

    A preset sets these fields to the values of its source. A field that the recipe sets itself replaces the preset's.
    """

    preset: Literal["c4", "fineweb"] | None = None
    """The source whose line rules apply: C4, or FineWeb, which uses C4's rules without `ended`."""
    ended: bool = False
    """Whether a line must end in sentence punctuation or a quotation mark, and not in an ellipsis."""
    words_at_least: Count | None = None
    """The fewest words between white space in a line; C4 uses 3."""
    longest_word_at_most: Count | None = None
    """The most characters in a word of the line; C4's code uses 1,000."""
    without: tuple[Text, ...] = ()
    """Lines that contain one of these phrases, in any case, are left out; C4's code has `javascript` and six phrases
    about policies."""
    citations: bool = True
    """Whether marks such as `[3]`, `[edit]` and `[citation needed]` stay in lines; C4's code removes them."""

    def settings(self) -> Mapping[str, Any]:
        """All fields except the preset, with the preset's values filled in; empty if no rule for lines is active."""
        fields = LinesSection.model_fields.items()
        plain: dict[str, Any] = {name: field.default for name, field in fields if name != "preset"}
        chosen = plain | (dict(LINE_PRESETS[self.preset]) if self.preset else {})
        chosen |= {name: getattr(self, name) for name in self.model_fields_set - {"preset"}}
        return chosen if chosen != plain else {}


C4_LINES: Mapping[str, Any] = {
    "ended": True,
    "words_at_least": 3,
    "longest_word_at_most": 1000,
    "without": ("javascript", *POLICIES),
    "citations": False,
}
"""C4's line rules: Raffel et al. 2020 (JMLR 21, 2.2), and its code for the last three."""
LINE_PRESETS: Mapping[str, Mapping[str, Any]] = {"c4": C4_LINES, "fineweb": {**C4_LINES, "ended": False}}


class ClassifierSection(RecipeSection):
    """Your own fastText classifier, for example of quality. Documents below a score are left out."""

    file: Text
    """The model's file, `.bin` or `.ftz`; a relative path starts at the recipe's folder."""
    label: Text
    """The label whose score counts, without `__label__`."""
    at_least: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The lowest score, from 0 to 1, of a document that is kept."""

    @field_validator("file")
    @classmethod
    def _from_the_recipe(cls, file: str, info: ValidationInfo) -> str:
        return absolute(file, info)


OwnRules = dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,47}$")], Text]
"""Python files, by the name of the function that each defines."""


def checked_own_rules(rules: Mapping[str, str], info: ValidationInfo) -> dict[str, str]:
    """The rules with absolute paths. Raises Invalid for an existing file that does not define its function."""
    paths = {name: absolute(file, info) for name, file in rules.items()}
    for name, path in paths.items():
        if is_there(path):
            require_function(Path(path), name)
    return paths


def require_function(path: Path, name: str) -> None:
    """Raise Invalid unless the file defines a function of one argument. The file is not run."""
    require(path.is_file(), name, f"expected a Python file: {path} is not a file")
    try:
        parsed = ast.parse(regular_file.read(path))
    except OSError as error:
        raise Invalid(name, f"expected a readable file: {path}: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise Invalid(name, f"expected a Python file: {path}{line}: {getattr(error, 'msg', error)}") from None
    functions = [
        statement for statement in parsed.body if isinstance(statement, ast.FunctionDef) and statement.name == name
    ]
    one = bool(functions) and len(functions[-1].args.posonlyargs + functions[-1].args.args) == 1
    require(one, name, f"expected a function {name}(document) in {path}")
