"""What the dataset assets ask of a dataset recipe: the shape of it, whoever read and validated it."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol


class SourceSpec(Protocol):
    """Where documents come from. Globs know ``*`` (inside a name), ``?`` and ``**`` (any folders)."""

    @property
    def kind(self) -> Literal["stdlib", "directory"]: ...
    @property
    def path(self) -> str | None: ...
    @property
    def include(self) -> tuple[str, ...]: ...
    @property
    def exclude(self) -> tuple[str, ...]: ...


class TokenizerSpec(Protocol):
    @property
    def vocab_size(self) -> int: ...


class SplitSpec(Protocol):
    @property
    def validation(self) -> float: ...


class ShardsSpec(Protocol):
    """How many shards each split is laid out in."""

    @property
    def train(self) -> int: ...
    @property
    def validation(self) -> int: ...


class DatasetRecipe(Protocol):
    """A dataset recipe; `content` is the part of it that decides a snapshot's bytes, as JSON."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def source(self) -> SourceSpec: ...
    @property
    def tokenizer(self) -> TokenizerSpec: ...
    @property
    def split(self) -> SplitSpec: ...
    @property
    def shards(self) -> ShardsSpec: ...
    def content(self) -> Mapping[str, Any]: ...
