"""Constraints between parameters: a small language of comparisons. It is parsed, and never executed as Python.

    batch.micro <= batch.sequences
    optimizer.learning_rate * batch.sequences < 0.5 and batch.length % 64 == 0
    optimizer.kind != "muon" or optimizer.momentum > 0.9

Numbers, texts in quotes, true and false, dotted names of fields, + - * / // % and parentheses, comparisons (which may
be chained), `and`, `or`, `not`. A constraint that cannot be evaluated does not hold: for example, it divides by zero,
compares a number with a text, or calculates with a text.
"""

import ast
import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slipway.recipes.problems import format_value

LONGEST = 500
"""The most characters of a constraint, which also bounds the depth of its syntax tree."""
EXPECTED = (
    "comparisons of numbers, texts and fields such as batch.micro <= batch.sequences, with + - * / // % and "
    "parentheses, joined by and, or, not"
)

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_BOOLEANS = {"true": True, "false": False}


class InvalidConstraint(ValueError):
    """A text that is not a constraint, or values for which it cannot be evaluated; the message says what was found."""


@dataclass(frozen=True)
class Constraint:
    """A condition on the values of fields."""

    text: str
    _tree: ast.expr

    @property
    def names(self) -> frozenset[str]:
        """The fields that the constraint names."""
        return frozenset(_names(self._tree))

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the constraint holds for these values. It holds if it names a field without a value, because that
        field does not exist."""
        try:
            return not self._has_all(values) or bool(_value(self._tree, values))
        except (InvalidConstraint, ArithmeticError):
            return False

    def check(self, values: Mapping[str, Any]) -> None:
        """Raises InvalidConstraint if the constraint compares or calculates with values of the wrong type."""
        if self._has_all(values):
            with contextlib.suppress(ArithmeticError):
                _value(self._tree, values)

    def _has_all(self, values: Mapping[str, Any]) -> bool:
        return all(values.get(name) is not None for name in self.names)


def parse(text: str) -> Constraint:
    """Parse a constraint. Raises InvalidConstraint."""
    if len(text) > LONGEST:
        raise InvalidConstraint(f"{len(text)} characters, of {LONGEST} at most")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidConstraint(text) from None
    _check(tree, text, condition=True)
    return Constraint(text, tree)


def _check(node: ast.expr, text: str, condition: bool) -> None:
    """Refuse syntax outside the language; `condition` says whether a truth value is expected here."""
    match node:
        case ast.BoolOp(values=values) if condition:
            parts = [(value, True) for value in values]
        case ast.UnaryOp(op=ast.Not(), operand=operand) if condition:
            parts = [(operand, True)]
        case ast.Compare(left=first, ops=ops, comparators=others) if condition and all(
            type(op) in _COMPARISONS for op in ops
        ):
            parts = [(operand, False) for operand in (first, *others)]
        case ast.BinOp(left=first, op=op, right=right) if not condition and type(op) in _ARITHMETIC:
            parts = [(first, False), (right, False)]
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not condition:
            parts = [(operand, False)]
        case ast.Constant(value=bool() | int() | float() | str()) if not condition:
            parts = []
        case ast.Name() | ast.Attribute() if not condition and _dotted(node) is not None:
            parts = []
        case _:
            raise InvalidConstraint(ast.get_source_segment(text.strip(), node) or text)
    for part, is_condition in parts:
        _check(part, text, is_condition)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, values)
        case ast.UnaryOp(operand=operand):
            return -_number(_value(operand, values))
        case ast.Compare(left=first, ops=ops, comparators=others):
            operands = [_value(operand, values) for operand in (first, *others)]
            return all(_compared(op, a, b) for op, a, b in zip(ops, operands, operands[1:], strict=False))
        case ast.BinOp(left=first, op=op, right=right):
            return _ARITHMETIC[type(op)](_number(_value(first, values)), _number(_value(right, values)))
        case ast.Constant(value=value):
            return value
    name = _dotted(node)
    assert name is not None, "a constraint was checked when it was parsed"
    return _BOOLEANS.get(name, values.get(name))


def _compared(comparison: ast.cmpop, one: Any, other: Any) -> bool:
    try:
        return _COMPARISONS[type(comparison)](one, other)
    except TypeError:
        raise InvalidConstraint(f"{format_value(one)} beside {format_value(other)}") from None


def _number(value: Any) -> int | float:
    if isinstance(value, int | float):
        return value
    raise InvalidConstraint(f"{format_value(value)} beside + - * / // %")


def _names(node: ast.AST) -> Iterator[str]:
    name = _dotted(node)
    if name is None:
        for child in ast.iter_child_nodes(node):
            yield from _names(child)
    elif name not in _BOOLEANS:
        yield name


def _dotted(node: ast.AST) -> str | None:
    """The dotted name, such as `batch.micro`, of a name or an attribute; None for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            before = _dotted(value)
            return None if before is None else f"{before}.{name}"
    return None
