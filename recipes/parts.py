"""What recipes are made of: strictly typed, frozen sections, and what every recipe has."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    """A part of a recipe: strictly typed, no unknown fields, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Recipe(Part):
    """What all recipes have. The name is the stem of the file."""

    name: str
    description: Text
    owner: str
    """Who is asked about the assets, as Dagster writes it."""

    @field_validator("owner")
    @classmethod
    def _is_owner(cls, owner: str) -> str:
        if not re.fullmatch(r"team:\S+|[^@\s]+@[^@\s]+\.[^@\s.]+", owner):
            raise ValueError("expected team:<name> or an email address")
        return owner


def absolute(path: str, info: ValidationInfo) -> str:
    """`path`, which a recipe may write relative to its own file."""
    return str(((info.context or {}).get("folder", Path.cwd()) / path).resolve())
