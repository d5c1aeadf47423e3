"""Where a training's first weights come from, as its recipe says it: the section `init`."""

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import ValidationInfo, field_validator, model_validator

from recipes.parts import Count, Part, Text, absolute
from trainer.invalid import require

_FOLDERS = ("/", "./", "../")
_STEP = re.compile(r"[^/\s.][^/\s]*/\d+")


class Init(Part):
    """Exactly one of `checkpoint`, `model` and `huggingface`."""

    checkpoint: Text | None = None
    """A checkpoint's folder, or `<training>/<step>` of this platform; absolute once loaded, if it is a folder."""
    model: Text | None = None
    """A registered model."""
    version: Count | None = None
    """Of the registered model."""
    alias: Text | None = None
    """Or the version that has this alias when the training is offered; without both, the champion."""
    huggingface: Text | None = None
    """A folder with a Llama model; an absolute path once loaded, the recipe may write it relative to its file."""
    digest: str | None = None
    """What must be found there (`trainer.initial.digest_of`); weights with another digest are refused."""

    @field_validator("checkpoint")
    @classmethod
    def _is_folder_or_step(cls, checkpoint: str | None, info: ValidationInfo) -> str | None:
        if checkpoint is None or _STEP.fullmatch(checkpoint):
            return checkpoint
        if not checkpoint.startswith(_FOLDERS):
            raise ValueError("expected <training>/<step>, or a folder that begins with /, ./ or ../")
        return absolute(checkpoint, info)

    @field_validator("huggingface")
    @classmethod
    def _from_the_recipe(cls, huggingface: str | None, info: ValidationInfo) -> str | None:
        return None if huggingface is None else absolute(huggingface, info)

    @field_validator("digest")
    @classmethod
    def _is_digest(cls, digest: str | None) -> str | None:
        if digest is not None and not re.fullmatch("[0-9a-f]{64}", digest):
            raise ValueError("expected 64 hex digits")
        return digest

    @model_validator(mode="after")
    def _is_one_source(self) -> Self:
        if sum(source is not None for source in (self.checkpoint, self.model, self.huggingface)) != 1:
            raise ValueError("expected exactly one of checkpoint, model, huggingface")
        for name in ("version", "alias"):
            require(self.model is not None or getattr(self, name) is None, name, "expected only beside model")
        require(self.version is None or self.alias is None, "alias", "expected none beside version")
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
    def moving_alias(self) -> str | None:
        """The alias that decides, which tomorrow may mean other weights than today; None when none does."""
        return self.alias or "champion" if self.model is not None and self.version is None else None

    def identity(self) -> dict[str, str]:
        """What of it decides the training's numbers, as `trainer.config.Init` has it."""
        assert self.digest is not None, "it is settled first"
        return {"layout": self.layout, "digest": self.digest}
