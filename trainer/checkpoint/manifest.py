"""The manifest: what a checkpoint's folder holds, by name, size and hash, and where in it each tensor's chunks lie.

``MANIFEST.json`` of ``<durable>/checkpoints/<training>/<step>.<token>/``::

    {"format": "slipway.checkpoint/1",
     "layout": "chunks/1",                            what the files hold
     "files": {"model-00000.safetensors": {"bytes": 1024, "blake3": "64 hex digits"}, ..., "progress.json": {...}},
     "tensors": {"model/head.weight":                 group and name
        {"dtype": "F32", "shape": [64, 32],           the whole tensor's
         "chunks": [{"offsets": [0, 0], "sizes": [32, 32], "file": "model-00000.safetensors", "begin": 512}, ...]}}}

A chunk is a box of its tensor, at `offsets` and of `sizes`, contiguous in `file` from byte `begin` on (row-major,
little-endian). Chunks of a tensor don't overlap and fill it. Groups: model (parameters and buffers by their name),
optimiser (parameter's name/key) and extra (what else the engine keeps). Files of rank R: ``model-<R>.safetensors``,
``optimiser-<R>.safetensors``, ``frozen-<R>.safetensors`` (parameters that do not train); each is a safetensors file
of its own, whose keys are the tensors' names, with ``[begin:end,...]`` behind those that are not whole.
``progress.json`` is everything that is not a tensor. The layout "chunks/1" stands for all this; other folders that
are written and verified in the same way (exports) have no `tensors`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer import atomic

FORMAT = "slipway.checkpoint/1"


@dataclass(frozen=True)
class File:
    bytes: int
    blake3: str
    """Of the content as it lies there, 64 hex digits."""


@dataclass(frozen=True)
class Chunk:
    """A box of a tensor, and where its bytes are."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    begin: int
    """The first byte, from the beginning of the file."""


@dataclass(frozen=True)
class Entry:
    """One tensor: `dtype` as safetensors spells it (F32, BF16, I64, ...), `shape` of the whole."""

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class Manifest:
    layout: str
    files: Mapping[str, File]
    tensors: Mapping[str, Entry] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The bytes of MANIFEST.json; equal manifests have equal ones."""
        files = {name: asdict(file) for name, file in self.files.items()}
        value = {"format": FORMAT, "layout": self.layout, "files": files}
        if self.tensors:
            value["tensors"] = {name: asdict(entry) for name, entry in self.tensors.items()}
        return atomic.canonical_json(value)

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.bytes for file in self.files.values())


def decode(data: bytes) -> Manifest:
    """The manifest that `encode` gave `data` for. Raises ValueError for another format."""
    value = json.loads(data)
    if value.get("format") != FORMAT:
        raise ValueError(f"found format {value.get('format')}, expected {FORMAT}")
    files = {name: File(**file) for name, file in value["files"].items()}
    tensors = {name: entry(described) for name, described in value.get("tensors", {}).items()}
    return Manifest(value["layout"], files, tensors)


def entry(value: Mapping[str, Any]) -> Entry:
    """One tensor from its JSON."""
    chunks = tuple(
        Chunk(tuple(chunk["offsets"]), tuple(chunk["sizes"]), chunk["file"], chunk["begin"])
        for chunk in value["chunks"]
    )
    return Entry(value["dtype"], tuple(value["shape"]), chunks)
