"""Weight files: safetensors files that are written tensor by tensor, in several files with an index.

The header of a file has the place of each tensor, which follows from the shapes alone. So only one tensor, with its
parts, is in memory at a time (https://huggingface.co/docs/safetensors, "Format").
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slipway.trainer.base import atomic
from slipway.trainer.start.huggingface import INDEX, WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

BYTES = {"F32": 4, "BF16": 2}
"""The bytes of an element, by the name of its type."""
Make = Callable[[str], "Tensor"]
"""Returns the tensor of a name, with the planned type and shape."""


@dataclass(frozen=True)
class WeightFile:
    """One planned file: its name, and the shape of each of its tensors in their order."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]

    def blocks(self, dtype: str, make: Make) -> Iterator[bytes | memoryview]:
        """The content of the file: its header, then one tensor after the other."""
        yield _header(self.shapes, dtype)
        for name, shape in self.shapes.items():
            tensor = make(name)
            assert tuple(tensor.shape) == shape, f"{name}: {tuple(tensor.shape)} is not the planned {shape}"
            yield _memory(tensor)


def plan(shapes: Mapping[str, tuple[int, ...]], dtype: str, most_bytes: int) -> list[WeightFile]:
    """Files of at most `most_bytes`, filled in turn; a tensor that is larger has a file of its own.

    Names are those of transformers: `model.safetensors` for a single file, else `model-00001-of-00003.safetensors`.
    """
    groups: list[dict[str, tuple[int, ...]]] = [{}]
    room = most_bytes
    for name, shape in shapes.items():
        size = math.prod(shape) * BYTES[dtype]
        if groups[-1] and size > room:
            groups.append({})
            room = most_bytes
        groups[-1][name] = shape
        room -= size
    if len(groups) == 1:
        return [WeightFile(WEIGHTS, groups[0])]
    stem, suffix = WEIGHTS.split(".")
    return [WeightFile(f"{stem}-{n:05d}-of-{len(groups):05d}.{suffix}", group) for n, group in enumerate(groups, 1)]


def index(files: Sequence[WeightFile], dtype: str) -> dict[str, bytes]:
    """The index, by its name, if there are several files; empty for a single one."""
    if len(files) == 1:
        return {}
    size = sum(math.prod(shape) * BYTES[dtype] for file in files for shape in file.shapes.values())
    file_by_tensor = {name: file.name for file in files for name in file.shapes}
    return {INDEX: atomic.readable_json({"metadata": {"total_size": size}, "weight_map": file_by_tensor})}


def _header(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> bytes:
    """The length of the header in 8 bytes, and the header; blanks make tensors begin at a multiple of 8."""
    described: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, shape in shapes.items():
        end = begin + math.prod(shape) * BYTES[dtype]
        described[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    data = json.dumps(described, separators=(",", ":")).encode()
    data += b" " * (-len(data) % 8)
    return len(data).to_bytes(8, "little") + data


def _memory(tensor: "Tensor") -> memoryview:
    """The bytes of a tensor, row by row."""
    import torch

    return tensor.contiguous().view(torch.uint8).flatten().numpy().data
