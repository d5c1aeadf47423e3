"""Problems in recipes: the place, the field, the value found and the value expected.

All problems of all recipes are raised together, so that a person can correct them at once.
"""

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]
"""The path to a value from the top of the recipe: keys of mappings and indices of lists."""


@dataclass(frozen=True)
class Location:
    """The place of a value: a line of a file, or an environment variable (without a line)."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        if self.line is None:
            return self.file
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class RecipeFault:
    """The fault of one value of a recipe, without its place in a file."""

    path: Path
    actual: str
    expected: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: found {self.actual}, expected {self.expected}"


@dataclass(frozen=True)
class Problem:
    """A fault and its place. `field` is dotted, and empty for a problem of the whole file."""

    location: Location
    field: str
    actual: str
    expected: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.location}: {field}found {self.actual}, expected {self.expected}"


class InvalidRecipes(ValueError):
    """Invalid recipes. The text has one problem on each line, sorted by file and line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(
            sorted(problems, key=lambda problem: (problem.location.file, problem.location.line or 0, problem.field))
        )
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: Path) -> str:
    return ".".join(map(str, path))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The words for an unknown name, with the known name that was probably meant."""
    similar = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    if similar:
        return f"an unknown {what} (did you mean {similar[0]}?)"
    return f"an unknown {what}"


def format_value(value: Any) -> str:
    """A value as a recipe would write it, in at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
