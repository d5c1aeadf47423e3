"""Weight entries: the place of each tensor of our model in the tensors of a family; and the interface of a family."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.trainer.config.shapes import Data, Shape

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class WeightEntry:
    """One tensor of our model: all rows of a tensor of the family, or some rows of a fused one."""

    name: str
    hf_name: str
    shape: tuple[int, ...]
    """The shape of our tensor."""
    begin: int = 0
    """The row of their tensor that is our first one."""
    rows: int = 0
    """The rows of their tensor; 0 if it has as many as ours."""
    transposed: bool = False
    """Whether theirs is stored with inputs as rows, so that our rows are its columns."""

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape of their tensor in a file."""
        shape = (self.rows or self.shape[0], *self.shape[1:])
        return shape[::-1] if self.transposed else shape

    def read(self, stored: Any, offsets: Sequence[int] = (), sizes: Sequence[int] = ()) -> "Tensor":
        """A box of our tensor, by default all of it, from their tensor or a slice of a safetensors file."""
        offsets = offsets or (0,) * len(self.shape)
        sizes = sizes or self.shape
        box = [slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True)]
        if box:
            box[0] = slice(box[0].start + self.begin, box[0].stop + self.begin)
        if self.transposed:
            transposed_part: Tensor = stored[tuple(reversed(box))]
            return transposed_part.t()
        part: Tensor = stored[tuple(box)]
        return part


@dataclass(frozen=True)
class Settings:
    """The content of a model's config.json: its shape, and the sizes of its data."""

    kind: str
    """Its `model_type`: a key of `table.FAMILIES`."""
    model: Shape
    data: Data
    """The vocabulary and the longest sequence, or the size of the pictures and the number of classes."""

    @property
    def tied(self) -> bool:
        """Whether one matrix is both the embedding and the head."""
        return bool(getattr(self.model, "tied", False))


Entries = Callable[[Settings], list[WeightEntry]]
Finish = Callable[[dict[str, "Tensor"], Path], dict[str, "Tensor"]]


@dataclass(frozen=True)
class Family:
    """One `model_type` of transformers."""

    read: Callable[[Mapping[str, Any]], Settings]
    """The settings from the value of config.json. Raises ValueError and KeyError."""
    entries: Entries
    standard: Callable[[str], str] = lambda name: name
    """The name of a tensor in `entries`, from its name in a published file."""
    further: tuple[str, ...] = field(default=())
    """Suffixes, and prefixes (with a dot at the end), of tensors that a file may have and that are not read."""
    finish: Finish | None = None
    """Computes further tensors when all entries of a folder are read; None if there are none."""

    def leaves_out(self, name: str) -> bool:
        """Whether a file may have a tensor of this name that is not read."""
        prefixes = tuple(pattern for pattern in self.further if pattern.endswith("."))
        suffixes = tuple(pattern for pattern in self.further if not pattern.endswith("."))
        return name.startswith(prefixes) or name.endswith(suffixes)


def only(value: Mapping[str, Any], **requirements: Any) -> None:
    """Raises ValueError for a setting whose value is not the only one of our models; a missing setting is accepted."""
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
    """The tensors of an encoder's block, with the two prefixes; `matrices` and `norms` map our names to theirs."""
    shapes = {"feed_forward.up": (hidden, width), "feed_forward.down": (width, hidden)}
    for name, hf_name in matrices.items():
        yield from pair(f"{prefix}{name}", f"{hf_prefix}{hf_name}", shapes.get(name, (width, width)))
    for name, hf_name in norms.items():
        yield from pair(f"{prefix}{name}", f"{hf_prefix}{hf_name}", (width,))
