"""Strict validation against a pydantic model: it reports all faults at once, each with the expected value.

Strict has its meaning from JSON: "3" is not a number and 3.0 is not a whole number, but a list may become a tuple and
a section a dataclass. If a dataclass raises `slipway.trainer.base.invalid.Invalid`, the fault names that field.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import pydantic
from pydantic_core import ErrorDetails

from slipway.recipes.parts import RecipeSection
from slipway.recipes.problems import Path, RecipeFault, format_value, unknown
from slipway.trainer.base.invalid import Invalid

Model = TypeVar("Model", bound=pydantic.BaseModel)
Value = TypeVar("Value")

_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "literal_error": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "a number below {lt}",
    "less_than_equal": "{le} or less",
    "dataclass_type": "a section",
    "model_type": "a section",
    "dict_type": "a section",
    "tuple_type": "a list",
    "list_type": "a list",
    "string_pattern_mismatch": "text of the form {pattern}",
    "too_short": "{min_length} or more",
    "too_long": "a list of {max_length}",
    "union_tag_invalid": "one of {expected_tags}",
}
_KIND_NAMES: dict[Any, str] = {
    **{bool: "true or false", int: "a whole number", float: "a number", str: "text"},
    **{tuple: "a list", list: "a list"},
}


class RefusedValue(ValueError):
    """A value that its model does not accept, with all its faults."""

    def __init__(self, faults: list[RecipeFault]) -> None:
        self.faults = faults
        super().__init__("; ".join(map(str, faults)))


def validate(kind: type[Model], value: Any, context: Mapping[str, Any] | None = None) -> Model:
    """Validate a JSON value as an instance of `kind`. Raises RefusedValue with every fault."""
    outside = list(_outside(value, ()))
    if outside:
        raise RefusedValue(outside)
    try:
        return kind.model_validate_json(json.dumps(value), context=dict(context or {}))
    except pydantic.ValidationError as error:
        raise RefusedValue(_faults(kind, value, error)) from None


def _outside(value: Any, path: Path) -> Iterator[RecipeFault]:
    """The faults of values that no field accepts, because files and tables cannot store them."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if isinstance(name, str):
                yield from _outside(name, path)
            yield from _outside(item, (*path, name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _outside(item, (*path, index))
    elif isinstance(value, str):
        if not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value):
            yield RecipeFault(path, json.dumps(value), "text without lone surrogates")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield RecipeFault(
            path, format_value(value), "a whole number from -2^63 to 2^63 - 1; a larger one is written 1e30"
        )


class _Section(RecipeSection, Generic[Value]):
    section: Value


def validate_section(kind: type[Value], value: Any) -> Value:
    """Validate a section as an instance of the dataclass `kind`. Raises RefusedValue."""
    try:
        return validate(_Section[kind], {"section": value}).section  # type: ignore[valid-type]
    except RefusedValue as refused:
        raise RefusedValue(
            [RecipeFault(fault.path[1:], fault.actual, fault.expected) for fault in refused.faults]
        ) from None


def fields_of(kind: Any) -> dict[str, Any]:
    """The fields of a model or dataclass that a recipe may set, with their types, without `name`."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {name: field.annotation for name, field in kind.model_fields.items() if name != "name"}


def _faults(kind: Any, value: Any, error: pydantic.ValidationError) -> list[RecipeFault]:
    faults = []
    for details in error.errors(include_url=False):
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, RefusedValue):  # a section that was validated separately
            path = _path(value, details["loc"])
            faults += [RecipeFault((*path, *fault.path), fault.actual, fault.expected) for fault in cause.faults]
        else:
            faults.append(_fault(kind, value, details))
    return faults


def _fault(kind: Any, value: Any, error: ErrorDetails) -> RecipeFault:
    path = _path(value, error["loc"])
    context = error.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, Invalid):
        path = (*path, *cause.field.split("."))
        return RecipeFault(path, format_value(_at(value, path)), str(cause).removeprefix("expected "))
    if cause is not None:
        return RecipeFault(path, format_value(error["input"]), str(cause).removeprefix("expected "))
    match error["type"]:
        case "missing":
            return RecipeFault(path, "nothing", _kind_name(_kind_at(kind, error["loc"])))
        case "extra_forbidden" | "unexpected_keyword_argument":
            known = fields_of(_members(_kind_at(kind, error["loc"][:-1]))[0])
            return RecipeFault(path, unknown("field", str(path[-1]), known), f"one of {', '.join(known)}")
        case "union_tag_not_found":
            return RecipeFault((*path, "kind"), "nothing", "the kind of this section")
        case "union_tag_invalid":
            path = (*path, "kind")
            return RecipeFault(path, format_value(context["tag"]), _EXPECTED["union_tag_invalid"].format(**context))
    bounds = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in context.items()}
    expected = _EXPECTED[error["type"]].format(**bounds) if error["type"] in _EXPECTED else error["msg"]
    return RecipeFault(path, format_value(error["input"]), expected)


def _path(value: Any, loc: Path) -> Path:
    """`loc` without the steps that pydantic adds for members of unions, which do not occur in recipes."""
    path: Path = ()
    for depth, step in enumerate(loc):
        last = depth == len(loc) - 1
        if isinstance(value, dict) and step not in value and step == value.get("kind"):
            continue
        if isinstance(value, dict) and (step in value or last):
            path = (*path, step)
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            path = (*path, step)
            value = value[step] if step < len(value) else None
    return path


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _kind_at(kind: Any, loc: Path) -> Any:
    """The type of the field at `loc` below the type `kind`."""
    for step in loc:
        members = _members(kind)
        if len(members) > 1:
            kind = next(member for member in members if step in typing.get_args(fields_of(member)["kind"]))
        elif typing.get_origin(members[0]) in (dict, Mapping):
            kind = typing.get_args(members[0])[1]
        elif typing.get_origin(members[0]) in (tuple, list):
            kind = typing.get_args(members[0])[0]
        else:
            kind = fields_of(members[0])[str(step)]
    return kind


def _members(kind: Any) -> list[Any]:
    """The types of a union without None, or the type itself if it is not a union."""
    if typing.get_origin(kind) not in (types.UnionType, typing.Union):
        return [kind]
    return [argument for argument in typing.get_args(kind) if argument is not types.NoneType]


def _kind_name(kind: Any) -> str:
    """The expected value of the type `kind`, in words."""
    kind = _members(kind)[0]
    if typing.get_origin(kind) is typing.Literal:
        return f"one of {', '.join(typing.get_args(kind))}"
    return _KIND_NAMES.get(typing.get_origin(kind) or kind, "a section")
