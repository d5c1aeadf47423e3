"""Sections of the chart's values, derived from the platform's settings."""

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
    """A model with the fields of a model or dataclass as optional values with descriptions, except `left_out`."""
    if dataclasses.is_dataclass(section):
        hints = typing.get_type_hints(section)
        docstrings = _attribute_docstrings(section)
        fields = {
            dataclass_field.name: (hints[dataclass_field.name], docstrings.get(dataclass_field.name))
            for dataclass_field in dataclasses.fields(section)
        }
    else:
        assert issubclass(section, BaseModel)
        docstrings = {name: info.description for name, info in section.model_fields.items() if info.description}
        docstrings = docstrings or _attribute_docstrings(section)
        fields = {name: (info.annotation, docstrings.get(name)) for name, info in section.model_fields.items()}
    remaining = {field: value for field, value in fields.items() if field not in left_out}
    optional: dict[str, Any] = {
        field: (hint, Field(default=None, description=text)) for field, (hint, text) in remaining.items()
    }
    return create_model(name, __base__=Values, **optional)


def _attribute_docstrings(owner: type) -> dict[str, str]:
    """The docstring of each field of a class."""
    [class_definition] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(class_definition, ast.ClassDef)
    return {
        field.target.id: ast.literal_eval(below.value)
        for field, below in itertools.pairwise(class_definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr)
    }
