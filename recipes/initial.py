"""The section `init` of a training: the source of its initial weights."""

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import ValidationInfo, field_validator, model_validator

from slipway.recipes.parts import Count, RecipeSection, Text, absolute
from slipway.trainer.base.invalid import require

_FOLDERS = ("/", "./", "../")
_STEP = re.compile(r"[^/\s.][^/\s]*/\d+")


class InitSection(RecipeSection):
    """The source of the initial weights: exactly one of `checkpoint`, `model` and `huggingface`."""

    checkpoint: Text | None = None
    """A checkpoint of this platform as `<training>/<step>`, or the path of a checkpoint's folder, which begins with /,
    ./ or ../. A relative path starts at the recipe's folder."""
    model: Text | None = None
    """The name of a registered model."""
    version: Count | None = None
    """The version of the registered model; null to use an alias."""
    alias: Text | None = None
    """The alias that names the version; it is resolved when the training starts. The default without a version is the
    champion."""
    huggingface: Text | None = None
    """A folder with a model in the Hugging Face layout; a relative path starts at the recipe's folder."""
    digest: str | None = None
    """The digest that the weights must have (64 hex digits); weights with another digest are refused."""

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
        if huggingface is None:
            return None
        return absolute(huggingface, info)

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
        if self.huggingface is None:
            return "checkpoint"
        return "huggingface"

    @property
    def folder(self) -> str:
        """The folder with the weights, after the source was resolved."""
        folder = self.checkpoint or self.huggingface
        assert folder is not None and Path(folder).is_absolute(), (
            "the place and the digest of the weights are found first"
        )
        return folder

    @property
    def moving_alias(self) -> str | None:
        """The alias that decides the version, which may move from day to day; None if no alias does."""
        if self.model is not None and self.version is None:
            return self.alias or "champion"
        return None

    def identity(self) -> dict[str, str]:
        """The part of the section that decides the training's numbers, as in `slipway.trainer.config.resolved.Init`."""
        assert self.digest is not None, "the place and the digest of the weights are found first"
        return {"layout": self.layout, "digest": self.digest}
