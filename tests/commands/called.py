"""Called: which verbs of `slipway` the tests call, and with which options, read from the tests' own sources."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.commands.printed import ROOT, VERBS

CALLS = ("slipway", "said", "call", "run", "start", "command", "main")
"""What the tests call the command by: a fixture, a method of an instance, the command's own `main`."""
CALLBACKS = ("incidents",)
"""Groups that do something without a verb."""
MODULE = "slipway.cli"
"""Of `python -m slipway.cli`, in a list of words."""


def verb_of(words: Sequence[str]) -> str:
    """The verb that some words begin with; empty for none."""
    return next((verb for size in (2, 1) if (verb := " ".join(words[:size])) in (*VERBS, *CALLBACKS)), "")


def options_of(words: Sequence[str]) -> set[str]:
    """The options among some words."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def in_tests() -> dict[str, set[str]]:
    """By verb, all options with which a test calls it."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for words in _calls(path):
            if verb := verb_of(words):
                found.setdefault(verb, set()).update(options_of(words))
    return found


def _calls(path: Path) -> Iterator[list[str]]:
    """The words of each call in a file; what is no text in the source is an empty word."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and _name(node.func) in CALLS:
            words = [word for each in node.args for word in _words(each)]
            yield words[1:] if _name(node.func) == "said" else words
        elif isinstance(node, ast.List):
            words = list(_words(node))
            if MODULE in words:
                yield words[words.index(MODULE) + 1 :]


def _name(function: ast.expr) -> str:
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


def _words(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.List):
        for each in node.elts:
            yield from _words(each)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Starred):
        yield from _words(node.value)
    else:
        yield ""
