"""Names are the field's own: no identifier says nothing of what a thing is.

A participle alone (`found`, `held`, `given`) hides the noun that it stands for, and a private word (`twins`,
`yardstick`) is known only to those who wrote it. The tests look at bindings: assignments, loops, parameters, functions,
classes, attributes that are set, and names of files.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_files import HOUSE, ROOT, trees

pytestmark = pytest.mark.pure

# fmt: off
UNUSED = {
    "advice", "asked", "asking", "beginning", "carried", "choosing", "each", "elsewhere", "found", "given",
    "glance", "heart", "held", "here", "holder", "kept", "lacking", "lanes", "last_words", "left", "life",
    "lives", "made", "meant", "meeting", "met", "mine", "morning", "moved", "newcomers", "notes", "occupation",
    "offers", "ours", "owed", "place", "places", "pulse", "renewals", "returning", "roots", "said", "scribe",
    "seen", "shown", "spoken", "stay", "stick", "tails", "terms", "theirs", "told", "twins", "unseen", "waits",
    "wanted", "warm", "watched", "whole", "workplace", "workshop", "yardstick",
}
# fmt: on
"""Identifiers that are not used, with or without underscores before or after them."""
BRITISH = re.compile("optimis|materialis|initialis|normalis|synchronis|serialis|artefact|licence|colour|behaviour")
"""PyTorch and Dagster spell identifiers the American way. Sentences are British, and so are the names of tests."""
ROOMS = (*HOUSE, "benchmarks", "tests")


def bindings(tree: ast.Module) -> Iterator[str]:
    """Each name that the code of a file gives to something."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def names_of_files(room: str) -> Iterator[str]:
    """Of a room's modules, and of the folders that hold them."""
    files = set((ROOT / room).rglob("*.py"))
    yield from (path.stem.removeprefix("test_") for path in files)
    yield from (folder.name for folder in {path.parent for path in files})


def names_in(room: str) -> Iterator[str]:
    """Every name of a room, of modules and of what they bind."""
    yield from names_of_files(room)
    for path, tree in trees().items():
        if path.relative_to(ROOT).parts[0] == room:
            yield from bindings(tree)


@pytest.mark.parametrize("room", ROOMS)
def test_no_name_says_nothing_of_a_thing(room: str):
    assert {name for name in names_in(room) if name.strip("_").lower() in UNUSED} == set()


@pytest.mark.parametrize("room", ROOMS)
def test_names_are_spelled_as_pytorch_and_dagster_spell_them(room: str):
    names = (name for name in names_in(room) if not name.startswith("test_"))
    assert {name for name in names if BRITISH.search(name.lower())} == set()
