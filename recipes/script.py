"""The recipe of a training whose loop is the user's own script; `docs/scripts.md` is its contract."""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from slipway.recipes.parts import Text, absolute, is_there
from slipway.recipes.training import TrainingRecipe
from slipway.trainer.base.invalid import require

OF_MODELS = ("live_drift", "quality", "from_champion")
"""The fields of `renewal` that need a champion."""


class ScriptRecipe(TrainingRecipe):
    """A training whose loop is the user's own script; docs/scripts.md is its contract."""

    dataset: Text
    """The dataset to train on: the name of a file in datasets/."""
    code: Text
    """The script, or the folder in which the command runs. A relative path starts at the recipe's folder."""
    command: Annotated[tuple[Text, ...], Field(min_length=1)]
    """The command that each rank runs. Slipway appends the path of the configuration file as the last argument."""
    parameters: dict[str, Any] = Field({})
    """The names and values that the script reads from its configuration."""

    @field_validator("code")
    @classmethod
    def _is_there(cls, code: str, info: ValidationInfo) -> str:
        path = absolute(code, info)
        if not is_there(path):
            raise ValueError("expected an existing folder or file")
        return path

    @field_validator("parameters")
    @classmethod
    def _are_plain(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        for name, value in parameters.items():
            require(name.isidentifier() and name == name.lower(), name, "expected a lower-case name")
            plain = all(not isinstance(item, dict | list) for item in (value if isinstance(value, list) else [value]))
            require(plain, name, "expected a number, text, true, false, null, or a list of these")
        return parameters

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        allowed = self.placement.staging in ("auto", "whole", "window")
        require(allowed, "placement.staging", "expected auto, whole or window")
        folder = Path(self.code) if Path(self.code).is_dir() else Path(self.code).parent
        for word in self._files():
            there = is_there(folder / word) and (folder / word).is_file()
            require(there, "command", f"expected a file of the code: {word} does not exist")
        hides = [name for name in ("slipway", "slipway.py") if (folder / name).exists() and Path(self.code).is_dir()]
        require(not hides, "code", f"expected another name for {''.join(hides)}: it would hide Slipway's package")
        for name in OF_MODELS:
            is_set = self.renewal is not None and getattr(self.renewal, name)
            require(not is_set, f"renewal.{name}", f"expected no {name}: a script's training has no registered model")
        return self

    def _files(self) -> list[str]:
        """The words of the command that must be files of the code."""
        first, *others = self.command
        if first == "python":
            return [word for word in others[:1] if not word.startswith("-")]
        if "/" in first and not first.startswith("/"):
            return [first]
        return []
