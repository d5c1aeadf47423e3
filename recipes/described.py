"""Descriptions of the schema's fields: name, meaning, type and default, read from the classes and their docstrings.

The comments in a new recipe come from here, so they always agree with the validation.
"""

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from dataclasses import dataclass
from typing import Any

import pydantic
from pydantic_core import PydanticUndefined

from slipway.trainer.config.shapes import Shape
from slipway.trainer.models.decoder import DecoderShape

KIND_NAMES: dict[Any, str] = {
    int: "A whole number.",
    float: "A number.",
    str: "Text.",
    bool: "true or false.",
    tuple: "A list.",
    list: "A list.",
    dict: "A section of names and values.",
}
REQUIRED: Any = object()
"""The default of a field that has none: a recipe must set it."""


@dataclass(frozen=True)
class FieldDescription:
    """One field of a section."""

    name: str
    meaning: str
    """One paragraph."""
    sections: tuple[type, ...]
    """The classes that the section may be of, the usual class first; empty for a plain value."""
    default: Any
    choices: tuple[str, ...]
    """The possible values, if they are few and known."""


def fields(section: type) -> list[FieldDescription]:
    """The fields that a recipe may set in a section, in the order of the schema, without `name`."""
    texts = _docstrings(section)
    descriptions = []
    for name, (kind, default) in _declared(section).items():
        members = tuple(member for member in _members(kind) if _is_section(member))
        choices = tuple(_choices(kind))
        meaning = _meaning(texts.get(name, ""), kind, members, choices)
        descriptions.append(FieldDescription(name, meaning, members, default, choices))
    return descriptions


def summary(section: type) -> str:
    """The first paragraph of a class's own docstring; empty if it has none."""
    own = section.__dict__.get("__doc__") or ""
    written = not own.startswith(f"{section.__name__}(")  # the docstring that a dataclass generates
    if not written:
        return ""
    return " ".join(inspect.cleandoc(own).split("\n\n")[0].split())


def _declared(section: type) -> dict[str, tuple[Any, Any]]:
    """The type and the default of each field, by name."""
    if dataclasses.is_dataclass(section):
        hints = typing.get_type_hints(section)
        return {field.name: (hints[field.name], _default_of(field)) for field in dataclasses.fields(section)}
    assert issubclass(section, pydantic.BaseModel)
    return {
        name: (field.annotation, REQUIRED if field.is_required() else field.get_default(call_default_factory=True))
        for name, field in section.model_fields.items()
        if name != "name"
    }


def _default_of(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is dataclasses.MISSING:
        return REQUIRED
    return field.default_factory()


def _docstrings(section: type) -> dict[str, str]:
    """The docstrings of the fields of a class and of its base classes."""
    texts: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if not base.__module__.startswith(("slipway.recipes.", "slipway.trainer.")):
            continue
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, after in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(field.target, ast.Name):
                assert isinstance(after.value, ast.Constant)
                texts[field.target.id] = " ".join(str(after.value.value).split())
    return texts


def _meaning(text: str, kind: Any, sections: tuple[type, ...], choices: tuple[str, ...]) -> str:
    """The docstring of the field, or the summary of its section, or its type in words; followed by its choices."""
    sentence = text or (summary(sections[0]) if sections else "")
    listed = f"One of {', '.join(choices)}." if len(choices) > 1 else f"Always {choices[0]}." if choices else ""
    return " ".join(filter(None, [sentence, listed])) or _kind(kind)


def _choices(kind: Any) -> list[str]:
    literals = [member for member in _members(kind) if typing.get_origin(member) is typing.Literal]
    return [str(word) for literal in literals for word in typing.get_args(literal)]


def _kind(kind: Any) -> str:
    plain = _members(kind)[0]
    return KIND_NAMES.get(typing.get_origin(plain) or plain, "A value.")


def _members(kind: Any) -> list[Any]:
    """The types that a field may have, without None."""
    if typing.get_origin(kind) is typing.Annotated:
        return _members(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return [
            member
            for argument in typing.get_args(kind)
            if argument is not types.NoneType
            for member in _members(argument)
        ]
    return [DecoderShape if kind is Shape else kind]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, pydantic.BaseModel))


def is_required(default: Any) -> bool:
    """Whether this is the default of a field that a recipe must set."""
    return default is REQUIRED or default is PydanticUndefined
