"""Names are the field's own: words that say nothing of what a thing is become fewer in each room, and end at none.

A participle alone (`found`, `held`, `given`) hides the noun that it stands for, and a private word (`twins`,
`yardstick`) is known only to those who wrote it. Counted are bindings: assignments, loops, parameters, functions,
classes, attributes that are set, and names of files.
"""

import ast
from collections import Counter
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
    "wanted", "warm", "watched", "whole", "words", "workplace", "workshop", "yardstick",
}
# fmt: on
"""Identifiers that are used no more, once the counts are 0; with underscores before or after them too."""
ROOMS = (*HOUSE, "benchmarks", "tests")
COUNTS = {
    "assets": 3,
    "cli": 0,
    "deploy": 0,
    "operations": 0,
    "recipes": 2,
    "resources": 3,
    "sensors": 0,
    "serving": 0,
    "trainer": 10,
    "benchmarks": 0,
    "tests": 0,
}
"""What is left in each room. A number only falls: lower it with each name that goes."""


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


def unused_names(room: str) -> Counter[str]:
    inside = [tree for path, tree in trees().items() if path.relative_to(ROOT).parts[0] == room]
    names = [*names_of_files(room), *(name for tree in inside for name in bindings(tree))]
    bare = [name.strip("_").lower() for name in names]
    return Counter(name for name in bare if name in UNUSED)


@pytest.mark.parametrize("room", ROOMS)
def test_words_that_say_nothing_of_a_thing_become_fewer(room: str):
    names = unused_names(room)
    assert names.total() == COUNTS[room], names.most_common()
