"""Weight entries: where each tensor of our model lies in the tensors of a family, and what a family says of itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.trainer.config.shapes import Data, Shape

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class WeightEntry:
    """One tensor of our model, which is some rows of a tensor of the family: all, or one part of a fused one."""

    name: str
    hf_name: str
    shape: tuple[int, ...]
    """Of our tensor."""
    begin: int = 0
    """Which row of theirs is our first one."""
    rows: int = 0
    """How many rows theirs has; 0 for as many as ours."""
    transposed: bool = False
    """Whether theirs is stored with inputs as rows, and so has our rows as its columns."""

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape of their tensor in a file."""
        shape = (self.rows or self.shape[0], *self.shape[1:])
        return shape[::-1] if self.transposed else shape

    def read(self, stored: Any, offsets: Sequence[int] = (), sizes: Sequence[int] = ()) -> "Tensor":
        """A box of our tensor, by default all of it, out of their tensor or a slice of a safetensors file."""
        offsets, sizes = offsets or (0,) * len(self.shape), sizes or self.shape
        box = [slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True)]
        if box:
            box[0] = slice(box[0].start + self.begin, box[0].stop + self.begin)
        part: Tensor = stored[tuple(reversed(box) if self.transposed else box)]
        return part.t() if self.transposed else part


@dataclass(frozen=True)
class Settings:
    """What the config.json of a model says: its shape, and the data that it was made for."""

    kind: str
    """Its `model_type`: a key of `table.FAMILIES`."""
    model: Shape
    data: Data
    """The vocabulary and the longest sequence, or the size of the pictures and the number of classes."""

    @property
    def tied(self) -> bool:
        """Whether one matrix is the embedding and also the head."""
        return bool(getattr(self.model, "tied", False))


Entries = Callable[[Settings], list[WeightEntry]]
Finish = Callable[[dict[str, "Tensor"], Path], dict[str, "Tensor"]]


@dataclass(frozen=True)
class Family:
    """One `model_type` of transformers."""

    read: Callable[[Mapping[str, Any]], Settings]
    """From the value of config.json. Raises ValueError and KeyError."""
    entries: Entries
    standard: Callable[[str], str] = lambda name: name
    """The name of a tensor as `entries` has it; published files have others for the same tensor."""
    further: tuple[str, ...] = field(default=())
    """The ends and the beginnings (with a dot at the end) of names of tensors that a file may have and we leave out."""
    finish: Finish | None = None
    """What is computed once all entries of the model in a folder are read; None for nothing."""

    def leaves_out(self, name: str) -> bool:
        """Whether a file may have a tensor of this name, which we do not read."""
        return any(
            name.startswith(pattern) if pattern.endswith(".") else name.endswith(pattern) for pattern in self.further
        )


def only(value: Mapping[str, Any], **requirements: Any) -> None:
    """Raises ValueError for a setting with another value than the only one that we have; a missing one has that."""
    for name, expected in requirements.items():
        accepted = expected if isinstance(expected, tuple) else (expected,)
        if value.get(name, accepted[0]) not in accepted:
            raise ValueError(f"{name}: found {value[name]!r}, expected {accepted[0]!r}, the only value of our model")


def pair(prefix: str, hf_prefix: str, shape: tuple[int, ...]) -> Iterator[WeightEntry]:
    """A weight of this shape, and its bias."""
    yield WeightEntry(f"{prefix}.weight", f"{hf_prefix}.weight", shape)
    yield WeightEntry(f"{prefix}.bias", f"{hf_prefix}.bias", shape[:1])


def entries_of_block(
    prefix: str, hf_prefix: str, width: int, hidden: int, matrices: Mapping[str, str], norms: Mapping[str, str]
) -> Iterator[WeightEntry]:
    """The tensors of a block of an encoder, after the two prefixes; `matrices` and `norms` name theirs by ours."""
    shapes = {"feed_forward.up": (hidden, width), "feed_forward.down": (width, hidden)}
    for name, there in matrices.items():
        yield from pair(f"{prefix}{name}", f"{hf_prefix}{there}", shapes.get(name, (width, width)))
    for name, there in norms.items():
        yield from pair(f"{prefix}{name}", f"{hf_prefix}{there}", (width,))
