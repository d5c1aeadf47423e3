"""Called: which verbs of `slipway` the tests call, and with which options, read from the tests' own sources."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.commands.printed import ROOT, VERBS

CALLS = ("slipway", "output_of", "call", "run", "start", "command", "main")
"""What the tests call the command by: a fixture, a method of an instance, the command's own `main`."""
CALLBACKS = ("incidents",)
"""Groups that do something without a verb."""
MODULE = "slipway.cli"
"""Of `python -m slipway.cli`, in a list of words."""


def verb_of(arguments: Sequence[str]) -> str:
    """The verb that some words begin with; empty for none."""
    return next((verb for size in (2, 1) if (verb := " ".join(arguments[:size])) in (*VERBS, *CALLBACKS)), "")


def options_of(arguments: Sequence[str]) -> set[str]:
    """The options among some words."""
    return {word.partition("=")[0] for word in arguments if word.startswith("--")}


def in_tests() -> dict[str, set[str]]:
    """By verb, all options with which a test calls it."""
    options_by_verb: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for arguments in _calls(path):
            if verb := verb_of(arguments):
                options_by_verb.setdefault(verb, set()).update(options_of(arguments))
    return options_by_verb


def _calls(path: Path) -> Iterator[list[str]]:
    """The words of each call in a file; what is no text in the source is an empty word."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and _name(node.func) in CALLS:
            arguments = [word for argument in node.args for word in _texts_of(argument)]
            yield arguments[1:] if _name(node.func) == "output_of" else arguments
        elif isinstance(node, ast.List):
            arguments = list(_texts_of(node))
            if MODULE in arguments:
                yield arguments[arguments.index(MODULE) + 1 :]


def _name(function: ast.expr) -> str:
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


def _texts_of(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.List):
        for element in node.elts:
            yield from _texts_of(element)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Starred):
        yield from _texts_of(node.value)
    else:
        yield ""
