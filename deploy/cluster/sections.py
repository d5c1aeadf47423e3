"""Sections of the chart's values, and how they follow from the settings that they end in."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import typing
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from slipway.recipes.parts import RecipeSection


class Values(RecipeSection):
    """A section of the chart's values."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def without(section: type, left_out: tuple[str, ...], name: str) -> Any:
    """The fields of a model or a dataclass as optional values with descriptions, without those in `left_out`."""
    if dataclasses.is_dataclass(section):
        hints, said = typing.get_type_hints(section), _attribute_docstrings(section)
        fields = {each.name: (hints[each.name], said.get(each.name)) for each in dataclasses.fields(section)}
    else:
        assert issubclass(section, BaseModel)
        said = {name: each.description for name, each in section.model_fields.items() if each.description}
        said = said or _attribute_docstrings(section)
        fields = {name: (each.annotation, said.get(name)) for name, each in section.model_fields.items()}
    kept = {field: value for field, value in fields.items() if field not in left_out}
    optional: dict[str, Any] = {
        field: (hint, Field(default=None, description=text)) for field, (hint, text) in kept.items()
    }
    return create_model(name, __base__=Values, **optional)


def _attribute_docstrings(owner: type) -> dict[str, str]:
    """The string below each field of a class."""
    [found] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(found, ast.ClassDef)
    return {
        field.target.id: ast.literal_eval(below.value)
        for field, below in itertools.pairwise(found.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr)
    }
