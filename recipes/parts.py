"""The base classes of recipes: strictly typed, frozen sections, and the fields of every recipe."""

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]


class RecipeSection(BaseModel):
    """A section of a recipe. It is frozen, strictly typed, and refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Recipe(RecipeSection):
    """A recipe. Its name is the name of its file without the suffix."""

    name: str
    description: Text
    """What the recipe makes, in one sentence. The Dagster UI shows it."""
    owner: str
    """The owner of the assets: team:<name> or an email address."""

    @field_validator("owner")
    @classmethod
    def _is_owner(cls, owner: str) -> str:
        if not re.fullmatch(r"team:\S+|[^@\s]+@[^@\s]+\.[^@\s.]+", owner):
            raise ValueError("expected team:<name> or an email address")
        return owner


def is_there(path: str | Path) -> bool:
    """Whether `path` exists. A path that the system refuses, for example because it is too long, does not exist."""
    try:
        Path(path).stat()
    except OSError:
        return False
    return True


def absolute(path: str, info: ValidationInfo) -> str:
    """The absolute form of `path`, which may be relative to the recipe's folder."""
    if "\0" in path:
        raise ValueError("expected a path without NUL")
    return str(os.path.realpath((info.context or {}).get("folder", Path.cwd()) / path))
