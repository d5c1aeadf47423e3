"""The manifest of a checkpoint: the name, size and hash of each file.

``MANIFEST.json`` of ``<durable>/checkpoints/<training>/<step>.<token>/``::

    {"format": "slipway.checkpoint/1",
     "layout": "chunks/2",                            how the files hold the tensors
     "files": {"model-00000.safetensors": {"bytes": 1024, "blake3": "64 hex digits"}, ..., "progress.json": {...}}}

The files ``tensors.json`` and ``tensors-<R>.json`` have the places of the tensors
(`slipway.trainer.checkpoint.disk.tensor_table`)::

    {"model/head.weight":                 group and name
        {"dtype": "F32", "shape": [64, 32],           of the whole tensor
         "chunks": [{"offsets": [0, 0], "sizes": [32, 32], "file": "model-00000.safetensors", "begin": 512}, ...]}}

A chunk is a box of its tensor, at `offsets` and of `sizes`, contiguous in `file` from byte `begin` on (row-major,
little-endian). The chunks of a tensor fill it and do not overlap. Groups: model (parameters and buffers by name),
optimizer (<parameter>/<key>) and extra (further state of the engine). Files of rank R: ``model-<R>.safetensors``,
``optimizer-<R>.safetensors``, ``frozen-<R>.safetensors`` (parameters that are not trained). Each is a complete
safetensors file; its keys are the tensors' names, followed by ``[begin:end,...]`` if the file has only a part of the
tensor. ``progress.json`` holds everything that is not a tensor. The layout "chunks/2" is the name of all this. In
"chunks/1", which is only read, the manifest itself has the places of the tensors under `tensors`. Other folders that
are written and verified in the same way (exports) have no tensors.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slipway.trainer.base import atomic, parsing

MANIFEST = "MANIFEST.json"
FORMAT = "slipway.checkpoint/1"
LAYOUT = "chunks/2"
"""The layout of a training's checkpoints."""
READABLE = (LAYOUT, "chunks/1")


@dataclass(frozen=True)
class CheckpointFile:
    """The size and hash of one file, as the manifest records them."""

    bytes: int
    blake3: str
    """Of the file's bytes on disk, after encryption; 64 hex digits."""


@dataclass(frozen=True)
class Chunk:
    """A box of a tensor, and the place of its bytes."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    begin: int
    """The first byte, from the beginning of the file."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: `dtype` is its name in safetensors (F32, BF16, I64, ...), `shape` is that of the whole tensor."""

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class CheckpointManifest:
    """The manifest as a value; `decode` reads it from JSON."""

    layout: str
    files: Mapping[str, CheckpointFile]
    tensors: Mapping[str, TensorEntry] = field(default_factory=dict)
    """Only in the layout "chunks/1"; read them through `slipway.trainer.checkpoint.disk.tensor_table`."""

    def encode(self) -> bytes:
        """The bytes of MANIFEST.json; equal manifests have equal bytes."""
        files = {name: asdict(file) for name, file in self.files.items()}
        value = {"format": FORMAT, "layout": self.layout, "files": files}
        if self.tensors:
            value["tensors"] = {name: asdict(entry) for name, entry in self.tensors.items()}
        return atomic.canonical_json(value)

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(file.bytes for file in self.files.values())


def decode(data: bytes) -> CheckpointManifest:
    """The manifest in the bytes of a MANIFEST.json.

    Raises ValueError if it has another format, is no manifest, or names a file outside the folder.
    """
    value = parsing.value(data)
    format = value.get("format") if isinstance(value, dict) else None
    if format != FORMAT:
        raise ValueError(f"found format {format}, expected {FORMAT}")
    try:
        files = {_inside(name): CheckpointFile(**file) for name, file in value["files"].items()}
        tensors = {name: tensor_entry(described) for name, described in value.get("tensors", {}).items()}
        return CheckpointManifest(value["layout"], files, tensors)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a manifest of format {FORMAT}: {error!r}") from None


def _inside(name: str) -> str:
    """`name`, unless it leads out of the folder: then raises ValueError."""
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"found the file {name!r}, expected a name below the manifest's folder")
    return name


def require_readable(layout: str, folder: Path) -> None:
    """Raises ValueError unless `layout` is a readable layout of a training's checkpoints."""
    if layout not in READABLE:
        raise ValueError(f"{folder}: found the layout {layout!r}, expected {' or '.join(map(repr, READABLE))}")


def tensor_entry(value: Mapping[str, Any]) -> TensorEntry:
    """One tensor's entry from its JSON; without chunks if the JSON has only its type and shape."""
    chunks = tuple(
        Chunk(tuple(chunk["offsets"]), tuple(chunk["sizes"]), chunk["file"], chunk["begin"])
        for chunk in value.get("chunks", ())
    )
    return TensorEntry(value["dtype"], tuple(value["shape"]), chunks)
