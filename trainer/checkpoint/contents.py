"""The contents of a checkpoint: verified, then read, whole or the slices that a layout needs.

Readers without a world (evaluation, export, initial weights) take whole tensors; a training loads in place, by
DCP's load planner, whatever its world size and layout.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem

from trainer.checkpoint import files, format, progress, sealing
from trainer.checkpoint.dtypes import DTYPES
from trainer.checkpoint.manifest import Chunk, Entry, Manifest


@dataclass(frozen=True)
class Described:
    shape: torch.Size
    dtype: torch.dtype


class Contents:
    """One checkpoint in a folder. Nothing in it has been read yet but the manifest; `verify` first."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._sealed: dict[Path, bool] = {}
        self._chunks = {(name, c.offsets): c for name, entry in manifest.tensors.items() for c in entry.chunks}

    def verify(self, names: Iterable[str]) -> None:
        """Hash these files. Raises format.Damaged."""
        for name in names:
            files.verify(self.folder / name, self.manifest.files[name])

    def files(self, group: str) -> set[str]:
        """The files that hold a group's tensors."""
        return {chunk.file for name in self.names(f"{group}/") for chunk in self.manifest.tensors[name].chunks}

    def share(self, rank: int, size: int) -> list[str]:
        """The files of one of `size` shares, the largest dealt out first to whoever has least."""
        loads, shares = [0] * size, [list[str]() for _ in range(size)]
        for name, file in sorted(self.manifest.files.items(), key=lambda each: (-each[1].bytes, each[0])):
            least = loads.index(min(loads))
            shares[least].append(name)
            loads[least] += file.bytes
        return shares[rank]

    def progress(self) -> progress.Progress:
        return progress.decode(bytes(files.read(self.folder / format.PROGRESS)))

    def names(self, prefix: str) -> list[str]:
        return [name for name in self.manifest.tensors if name.startswith(prefix)]

    def described(self, name: str) -> Described:
        entry = self.manifest.tensors[name]
        return Described(torch.Size(entry.shape), DTYPES[entry.dtype])

    def tensors(self, group: str) -> dict[str, Tensor]:
        """The whole tensors of a group (model, optimiser, extra) on the host, by their names in it."""
        described = {name: self.described(name) for name in self.names(f"{group}/")}
        found = {name: torch.empty(each.shape, dtype=each.dtype) for name, each in described.items()}
        self.load(found)
        return {name.removeprefix(f"{group}/"): tensor for name, tensor in found.items()}

    def load(self, targets: Mapping[str, Tensor]) -> None:
        """Read into the tensors that are there, plain or DTensors, by name.

        Raises ValueError, with every tensor that does not fit, and format.Damaged when a file cannot be read.
        """
        self._check_shapes(targets)
        planner = DefaultLoadPlanner(flatten_state_dict=False)
        planner.set_up_planner(dict(targets), _metadata(self.manifest))
        plan = planner.finish_plan(planner.create_local_plan())
        for item in sorted(plan.items, key=lambda item: (self._chunk(item).file, self._chunk(item).begin)):
            target = planner.resolve_tensor(item).detach()
            entry = self.manifest.tensors[item.storage_index.fqn]
            target.copy_(self._box(self._chunk(item), DTYPES[entry.dtype], item))

    def _chunk(self, item: ReadItem) -> Chunk:
        assert item.storage_index.offset is not None
        return self._chunks[item.storage_index.fqn, tuple(item.storage_index.offset)]

    def _box(self, chunk: Chunk, dtype: torch.dtype, item: ReadItem) -> Tensor:
        """The part of a chunk that `item` asks for; of its rows, no others are read."""
        sizes, rows = torch.Size(chunk.sizes), (item.storage_offsets[0], item.lengths[0]) if chunk.sizes else (0, 1)
        row_bytes = sizes[1:].numel() * dtype.itemsize
        path, count = self.folder / chunk.file, rows[1] * row_bytes
        data = self._read(path, chunk.begin + rows[0] * row_bytes, count)
        box = torch.frombuffer(data, dtype=dtype) if count else torch.empty(0, dtype=dtype)
        box = box.view(rows[1], *sizes[1:]) if chunk.sizes else box.view(())
        for axis in range(1, len(sizes)):
            box = box.narrow(axis, item.storage_offsets[axis], item.lengths[axis])
        return box

    def _read(self, path: Path, begin: int, count: int) -> bytearray:
        """Bytes of a file as it was before it was sealed, if it is."""
        if path not in self._sealed:
            self._sealed[path] = sealing.is_sealed(files.read(path, 0, min(len(sealing.MAGIC), path.stat().st_size)))
        if not self._sealed[path]:
            return files.read(path, begin, count)
        return sealing.read(path, begin, count, self._key)

    @functools.cached_property
    def _key(self) -> sealing.Key | None:
        """The key that the training's configuration names. Raises ValueError when it cannot be read."""
        named = self.progress().config.get("storage", {}).get("key_file", "")
        return sealing.read_key(Path(named)) if named else None

    def _check_shapes(self, targets: Mapping[str, Tensor]) -> None:
        there = self.manifest.tensors
        faults = [f"{name}: not there" for name in targets if name not in there]
        faults += [
            f"{name}: found {list(there[name].shape)}, expected {list(target.shape)}"
            for name, target in targets.items()
            if name in there and there[name].shape != tuple(target.shape)
        ]
        if faults:
            raise ValueError(f"{self.folder}: a checkpoint of another model: {'; '.join(sorted(faults))}")


def open(folder: Path, manifest_sha256: str) -> Contents:
    """The checkpoint in `folder`, whose manifest has this SHA-256. Raises format.Damaged.

    Raises ValueError for a folder of another layout.
    """
    manifest = format.read_manifest(folder, manifest_sha256)
    if manifest.layout != format.LAYOUT:
        raise ValueError(f"{folder}: found the layout {manifest.layout!r}, expected {format.LAYOUT!r}")
    return Contents(folder, manifest)


def read(folder: Path, manifest_sha256: str, group: str = "") -> Contents:
    """The checkpoint in `folder`, every byte of it verified, or all that a group needs. Raises as `open` does."""
    contents = open(folder, manifest_sha256)
    contents.verify({*contents.files(group), format.PROGRESS} if group else contents.manifest.files)
    return contents


def _metadata(manifest: Manifest) -> Metadata:
    return Metadata({name: _stored(entry) for name, entry in manifest.tensors.items()})


def _stored(entry: Entry) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(c.offsets), torch.Size(c.sizes)) for c in entry.chunks]
    return TensorStorageMetadata(TensorProperties(dtype=DTYPES[entry.dtype]), torch.Size(entry.shape), chunks)
