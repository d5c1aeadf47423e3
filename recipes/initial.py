"""Where a training's first weights come from, as its recipe says it: the section `init`."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from recipes.parts import Count, Part, Text
from trainer.config import require

_FOLDERS = ("/", "./", "../")
_STEP = re.compile(r"[^/\s.][^/\s]*/\d+")


class Init(Part):
    """Exactly one of `checkpoint`, `model` and `huggingface`."""

    checkpoint: Text | None = None
    """A checkpoint's folder, or `<training>/<step>` of this platform; absolute once loaded, if it is a folder."""
    model: Text | None = None
    """A registered model."""
    version: Count | None = None
    """Of the registered model; without it, the version that `alias` has when the training is offered."""
    alias: Text = "champion"
    huggingface: Text | None = None
    """A folder with a Llama model; an absolute path once loaded, the recipe may write it relative to its file."""
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """What must be found there (`trainer.initial.digest_of`); weights with another digest are refused."""

    @field_validator("checkpoint")
    @classmethod
    def _is_folder_or_step(cls, checkpoint: str | None, info: ValidationInfo) -> str | None:
        if checkpoint is None or _STEP.fullmatch(checkpoint):
            return checkpoint
        if not checkpoint.startswith(_FOLDERS):
            raise ValueError("expected <training>/<step>, or a folder that begins with /, ./ or ../")
        return _absolute(checkpoint, info)

    @field_validator("huggingface")
    @classmethod
    def _from_the_recipe(cls, huggingface: str | None, info: ValidationInfo) -> str | None:
        return None if huggingface is None else _absolute(huggingface, info)

    @model_validator(mode="after")
    def _is_one_source(self) -> Self:
        if sum(source is not None for source in (self.checkpoint, self.model, self.huggingface)) != 1:
            raise ValueError("expected exactly one of checkpoint, model, huggingface")
        for name in ("version", "alias"):
            require(self.model is not None or name not in self.model_fields_set, name, "expected only beside model")
        require({"version", "alias"} - self.model_fields_set != set(), "alias", "expected none beside version")
        return self

    @property
    def layout(self) -> Literal["checkpoint", "huggingface"]:
        return "checkpoint" if self.huggingface is None else "huggingface"

    @property
    def folder(self) -> str:
        """The folder, once it is known where the weights lie."""
        folder = self.checkpoint or self.huggingface
        assert folder is not None and Path(folder).is_absolute(), "it is settled first"
        return folder

    @property
    def moves(self) -> bool:
        """Whether tomorrow it may mean other weights than today."""
        return self.model is not None and self.version is None

    def identity(self) -> dict[str, str]:
        """What of it decides the training's numbers, as `trainer.config.Init` has it."""
        assert self.digest is not None, "it is settled first"
        return {"layout": self.layout, "digest": self.digest}


def _absolute(path: str, info: ValidationInfo) -> str:
    return str(((info.context or {}).get("folder", Path.cwd()) / path).resolve())
