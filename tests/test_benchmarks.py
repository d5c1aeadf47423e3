"""Benchmarks: each line is printed as soon as it is measured, so that one that fails late has said what it knew."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def nodes() -> Iterator[tuple[str, ast.AST]]:
    """Each node of each benchmark, with its place."""
    for path in sorted(BENCHMARKS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            yield f"{path.name}:{getattr(node, 'lineno', 0)}", node


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    """The calls, below a node, of a function or a method of this name."""
    call_nodes = [node_below for node_below in ast.walk(node) if isinstance(node_below, ast.Call)]
    return [call for call in call_nodes if getattr(call.func, "id", getattr(call.func, "attr", "")) == name]


def test_a_line_does_not_wait_in_a_buffer():
    waiting = [
        position
        for position, node in nodes()
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "print"
        and calls(node, "dumps")
        and not any(option.arg == "flush" for option in node.keywords)
    ]
    assert waiting == []


def test_no_line_waits_until_all_others_are_measured():
    """A tuple or a list of all lines has every one of them before the first is printed."""
    prints = ("print_line", "dumps")
    collected = [
        position
        for position, node in nodes()
        if isinstance(node, ast.For)
        and isinstance(node.iter, ast.Tuple | ast.List)
        and any(isinstance(element, ast.Starred) and isinstance(element.value, ast.Call) for element in node.iter.elts)
        and any(calls(statement, name) for statement in node.body for name in prints)
    ]
    assert collected == []
