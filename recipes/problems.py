"""Problems found in recipes: where, in which field, what was found and what is expected.

All problems of all recipes are collected and raised together, so that a person can correct them all at once.
"""

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]
"""The path to a value: keys of mappings and places in lists, from the top of the recipe."""


@dataclass(frozen=True)
class Location:
    """Where a value was written: a line of a file, or an environment variable (which has no line)."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class RecipeFault:
    """What is wrong with one value of a recipe, without its place in a file."""

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
    """Recipes that cannot be used. The text has one problem on each line, by file and line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(
            sorted(problems, key=lambda problem: (problem.location.file, problem.location.line or 0, problem.field))
        )
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: Path) -> str:
    return ".".join(map(str, path))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """An unknown name in words, with the known one that was probably meant."""
    similar = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"an unknown {what} (did you mean {similar[0]}?)" if similar else f"an unknown {what}"


def format_value(value: Any) -> str:
    """A value as a recipe would write it, in at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
