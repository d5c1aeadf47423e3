"""The contents of a checkpoint: its tensors and its progress, read after they are verified.

Readers without ranks (evaluation, export, initial weights) read whole tensors. A training loads into the tensors that
it has: the load planner of PyTorch's distributed checkpoint (DCP) finds the slices that its layout needs.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainer.checkpoint.disk import encryption, progress, reading, verification
from trainer.checkpoint.disk.dtypes import DTYPES
from trainer.checkpoint.disk.manifest import LAYOUT, CheckpointManifest, Chunk
from trainer.checkpoint.disk.progress import PROGRESS

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import ReadItem


@dataclass(frozen=True)
class TensorType:
    """The shape and element type of a whole tensor."""

    shape: torch.Size
    dtype: torch.dtype


class Contents:
    """One checkpoint in a folder. Only its manifest has been read: call `verify` before anything else."""

    def __init__(self, folder: Path, manifest: CheckpointManifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._encrypted: dict[Path, bool] = {}
        self._chunks = {(name, c.offsets): c for name, entry in manifest.tensors.items() for c in entry.chunks}

    def verify(self, names: Iterable[str]) -> None:
        """Hash these files. Raises DamagedCheckpoint."""
        for name in names:
            verification.verify_file(self.folder / name, self.manifest.files[name])

    def files_of(self, group: str) -> set[str]:
        """The names of the files that hold a group's tensors."""
        return {chunk.file for name in self.tensor_names(f"{group}/") for chunk in self.manifest.tensors[name].chunks}

    def files_to_verify(self, rank: int, size: int) -> list[str]:
        """The files that this rank of `size` verifies; the next largest file goes to the rank with the fewest bytes."""
        loads, files = [0] * size, [list[str]() for _ in range(size)]
        for name, file in sorted(self.manifest.files.items(), key=lambda each: (-each[1].bytes, each[0])):
            least = loads.index(min(loads))
            files[least].append(name)
            loads[least] += file.bytes
        return files[rank]

    def progress(self) -> progress.TrainingProgress:
        return progress.decode(bytes(reading.read(self.folder / PROGRESS)))

    def tensor_names(self, prefix: str) -> list[str]:
        return [name for name in self.manifest.tensors if name.startswith(prefix)]

    def tensor_type(self, name: str) -> TensorType:
        entry = self.manifest.tensors[name]
        return TensorType(torch.Size(entry.shape), DTYPES[entry.dtype])

    def tensors(self, group: str) -> dict[str, Tensor]:
        """The whole tensors of a group (model, optimiser, extra) in host memory, by their names within the group."""
        types = {name: self.tensor_type(name) for name in self.tensor_names(f"{group}/")}
        found = {name: torch.empty(each.shape, dtype=each.dtype) for name, each in types.items()}
        self.load(found)
        return {name.removeprefix(f"{group}/"): tensor for name, tensor in found.items()}

    def load(self, targets: Mapping[str, Tensor]) -> None:
        """Read into the tensors `targets`, plain or DTensors, by name.

        Raises ValueError, which names every tensor that does not fit, and DamagedCheckpoint when a file cannot be read.
        """
        self._check_shapes(targets)
        # Imported only here; see there.
        from trainer.checkpoint.disk import load_plan

        def in_file(read: "tuple[ReadItem, Tensor]") -> tuple[str, int]:
            chunk = self._chunk(read[0])
            return chunk.file, chunk.begin

        # The plan of a few tensors must not cost the time of all.
        asked = replace(self.manifest, tensors={name: self.manifest.tensors[name] for name in targets})
        for item, target in sorted(load_plan.reads(asked, targets), key=in_file):
            entry = self.manifest.tensors[item.storage_index.fqn]
            target.copy_(self._read_box(self._chunk(item), DTYPES[entry.dtype], item))

    def _chunk(self, item: "ReadItem") -> Chunk:
        assert item.storage_index.offset is not None
        return self._chunks[item.storage_index.fqn, tuple(item.storage_index.offset)]

    def _read_box(self, chunk: Chunk, dtype: torch.dtype, item: "ReadItem") -> Tensor:
        """The part of a chunk that `item` needs; only the rows of that part are read."""
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
        """Bytes of a file, decrypted where it is encrypted."""
        if path not in self._encrypted:
            start = reading.read(path, 0, min(len(encryption.MAGIC), path.stat().st_size))
            self._encrypted[path] = encryption.is_encrypted(start)
        if not self._encrypted[path]:
            return reading.read(path, begin, count)
        return encryption.read(path, begin, count, self._key)

    @functools.cached_property
    def _key(self) -> encryption.Key | None:
        """The key in the file that the training's configuration names. Raises ValueError when it cannot be read."""
        named = self.progress().config.get("storage", {}).get("key_file", "")
        return encryption.read_key(Path(named)) if named else None

    def _check_shapes(self, targets: Mapping[str, Tensor]) -> None:
        there = self.manifest.tensors
        faults = [f"{name}: not in the checkpoint" for name in targets if name not in there]
        faults += [
            f"{name}: found {list(there[name].shape)}, expected {list(target.shape)}"
            for name, target in targets.items()
            if name in there and there[name].shape != tuple(target.shape)
        ]
        if faults:
            raise ValueError(f"{self.folder}: this is a checkpoint of another model: {'; '.join(sorted(faults))}")


def open_unverified(folder: Path, manifest_sha256: str) -> Contents:
    """The checkpoint in `folder`, of which only the manifest is verified.

    Raises DamagedCheckpoint unless the manifest has this SHA-256, and ValueError for a folder of another layout.
    """
    manifest = verification.read_manifest(folder, manifest_sha256)
    if manifest.layout != LAYOUT:
        raise ValueError(f"{folder}: found the layout {manifest.layout!r}, expected {LAYOUT!r}")
    return Contents(folder, manifest)


def open_verified(folder: Path, manifest_sha256: str, group: str = "") -> Contents:
    """The checkpoint in `folder`, with every byte verified; with a group, only the files that the group needs.

    Raises as `open_unverified` does.
    """
    contents = open_unverified(folder, manifest_sha256)
    contents.verify({*contents.files_of(group), PROGRESS} if group else contents.manifest.files)
    return contents
