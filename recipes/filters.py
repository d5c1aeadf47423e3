"""The parts of the section `cleaning` that leave out documents, or lines of them, by other means than a threshold.

Where a document comes from, which of its lines are sentences, what a classifier says of it, and rules of one's own.
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
"""What lines about a site's policies contain: the list of C4's own code (c4_utils.py of TensorFlow Datasets)."""


class UrlsSection(RecipeSection):
    """Documents are left out by where they come from: `reading.metadata.url`, or the pages of a web archive."""

    blocked: tuple[Text, ...] = ()
    """Domains, with their subdomains, and URLs, with all that begins with them up to a slash."""
    file: Text | None = None
    """A file with more of these, one a line; `#` begins a comment. A relative path starts at the recipe's folder."""
    words: tuple[Text, ...] = ()
    """Words of a URL, between any signs that are no letters or digits, for which a document is left out."""

    @field_validator("file")
    @classmethod
    def _from_the_recipe(cls, file: str | None, info: ValidationInfo) -> str | None:
        return None if file is None else absolute(file, info)


class LinesSection(RecipeSection):
    """Lines of a document are left out, and the rest is kept. A document of which nothing is left is left out.

    A preset sets these fields to the values of its source; a field that is set beside it replaces the preset's.
    """

    preset: Literal["c4", "fineweb"] | None = None
    """The source whose line rules are on: C4, or FineWeb, which is C4's without `ended`."""
    ended: bool = False
    """Whether a line must end in the mark of a sentence or a quotation, and not in an ellipsis."""
    words_at_least: Count | None = None
    """The fewest words between white space in a line; C4 uses 3."""
    longest_word_at_most: Count | None = None
    """The most characters of a word between white space; C4's code uses 1,000."""
    without: tuple[Text, ...] = ()
    """Lines with one of these, in capitals or not, are left out; C4's code has `javascript` and six about policies."""
    citations: bool = True
    """Whether marks such as `[3]`, `[edit]` and `[citation needed]` stay in lines; C4's code removes them."""

    def settings(self) -> Mapping[str, Any]:
        """The fields but the preset, with the preset's values; empty when no line is looked at."""
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
    """A fastText classifier of one's own, such as one of quality; documents below a score are left out."""

    file: Text
    """The model's file, `.bin` or `.ftz`; a relative path starts at the recipe's folder."""
    label: Text
    """The label whose score counts, without `__label__`."""
    at_least: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The lowest score, from 0 to 1, with which a document is kept."""

    @field_validator("file")
    @classmethod
    def _from_the_recipe(cls, file: str, info: ValidationInfo) -> str:
        return absolute(file, info)


OwnRules = dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,47}$")], Text]
"""Python files by the names of the functions in them."""


def checked_own_rules(rules: Mapping[str, str], info: ValidationInfo) -> dict[str, str]:
    """The rules with absolute paths. Raises Invalid for a file that is there and does not define its function."""
    paths = {name: absolute(file, info) for name, file in rules.items()}
    for name, path in paths.items():
        if is_there(path):
            require_function(Path(path), name)
    return paths


def require_function(path: Path, name: str) -> None:
    """Raise Invalid unless the file defines a function of one argument. The file is not run."""
    require(path.is_file(), name, f"expected a file of Python: {path} is none")
    try:
        parsed = ast.parse(regular_file.read(path))
    except OSError as error:
        raise Invalid(name, f"expected a file that can be read: {path}: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise Invalid(name, f"expected a file of Python: {path}{line}: {getattr(error, 'msg', error)}") from None
    functions = [
        statement for statement in parsed.body if isinstance(statement, ast.FunctionDef) and statement.name == name
    ]
    one = bool(functions) and len(functions[-1].args.posonlyargs + functions[-1].args.args) == 1
    require(one, name, f"expected a function {name}(document) in {path}")
