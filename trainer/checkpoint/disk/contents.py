"""The contents of a checkpoint: its tensors and its progress, read after they are verified.

Readers without ranks (evaluation, export, initial weights) read whole tensors. A training loads into its own tensors:
the load planner of PyTorch's distributed checkpoint (DCP) finds the slices that its layout needs.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slipway.trainer.checkpoint.disk import encryption, progress, reading, tensor_table, verification
from slipway.trainer.checkpoint.disk.dtypes import DTYPES
from slipway.trainer.checkpoint.disk.manifest import CheckpointManifest, Chunk, require_readable
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.checkpoint.disk.reading import Bytes, DamagedCheckpoint, Read
from slipway.trainer.checkpoint.disk.tensor_table import Bring, TensorTable

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import ReadItem


@dataclass(frozen=True)
class TensorType:
    """The shape and element type of a whole tensor."""

    shape: torch.Size
    dtype: torch.dtype


class Contents:
    """One checkpoint in a folder. Only its manifest is verified: call `verify` before any other method."""

    def __init__(
        self,
        folder: Path,
        manifest: CheckpointManifest,
        bring: Bring = tensor_table.is_there,
        read: Read | None = None,
    ) -> None:
        """`bring` is called with a file before it is read, to fetch it if the folder does not have it.

        With `read`, the files are somewhere else, and `folder` is only a name for messages.
        """
        self.folder = folder
        self.manifest = manifest
        self._bring = bring
        self._read_file = read or reading.from_folder(folder)
        self._encrypted: dict[str, bool] = {}
        self._table = TensorTable(folder, manifest, bring, self._read_file)

    def verify(self, names: Iterable[str]) -> None:
        """Hash these files. Raises DamagedCheckpoint."""
        for name in names:
            verification.verify_file(self.folder / name, self.manifest.files[name])

    def files_of(self, group: str) -> set[str]:
        """The names of the files that hold a group's tensors."""
        files: set[str] = set()
        for part in self._table.parts():
            for name, entry in part.items():
                if name.startswith(f"{group}/"):
                    files |= {chunk.file for chunk in entry.chunks}
        return files

    def files_to_verify(self, rank: int, size: int) -> list[str]:
        """The files that this rank of `size` verifies; the next largest file goes to the rank with the fewest bytes."""
        loads = [0] * size
        files = [list[str]() for _ in range(size)]
        for name, file in sorted(self.manifest.files.items(), key=lambda item: (-item[1].bytes, item[0])):
            least = loads.index(min(loads))
            files[least].append(name)
            loads[least] += file.bytes
        return files[rank]

    def progress(self) -> progress.TrainingProgress:
        self._bring(PROGRESS)
        return progress.decode(bytes(self._read_file(PROGRESS, 0, None)))

    def tensor_names(self, prefix: str) -> list[str]:
        return [name for name in self._table.types if name.startswith(prefix)]

    def tensor_type(self, name: str) -> TensorType:
        entry = self._table.types[name]
        return TensorType(torch.Size(entry.shape), DTYPES[entry.dtype])

    def tensors(self, group: str) -> dict[str, Tensor]:
        """The whole tensors of a group (model, optimizer, extra) in host memory, by their names within the group."""
        types = {name: self.tensor_type(name) for name in self.tensor_names(f"{group}/")}
        tensors = {name: torch.empty(tensor_type.shape, dtype=tensor_type.dtype) for name, tensor_type in types.items()}
        self.load(tensors)
        return {name.removeprefix(f"{group}/"): tensor for name, tensor in tensors.items()}

    def load(self, targets: Mapping[str, Tensor], share: float = 0.0) -> None:
        """Read into the tensors `targets`, plain or DTensors, by name.

        `share` is r / n for rank r of n: the search begins with the files that this rank most likely needs, and ends
        when every element is found. Raises ValueError, which names every tensor that does not fit, and
        DamagedCheckpoint if a file cannot be read.
        """
        self._check_shapes(targets)
        reads = sorted(self._reads(targets, share), key=lambda read: (read[0].file, read[0].begin))
        for chunk, item, target in reads:
            entry = self._table.types[item.storage_index.fqn]
            target.copy_(self._read_box(chunk, DTYPES[entry.dtype], item))

    def files_for(self, targets: Mapping[str, Tensor], share: float) -> set[str]:
        """The names of the files that `load` reads for these targets, without those of the tensor table.

        Raises ValueError for tensors that do not fit, and DamagedCheckpoint, as `load`.
        """
        self._check_shapes(targets)
        return {chunk.file for chunk, _, _ in self._reads(targets, share)}

    def _reads(self, targets: Mapping[str, Tensor], share: float) -> "list[tuple[Chunk, ReadItem, Tensor]]":
        """Each chunk to read, with the item and the target. Raises DamagedCheckpoint if the chunks do not suffice."""
        # Imported here and not at the start; that module says why.
        from slipway.trainer.checkpoint.disk import load_plan

        reads = list[tuple[Chunk, "ReadItem", Tensor]]()
        counts = {name: _elements_here(target) for name, target in targets.items()}
        missing = {name: count for name, count in counts.items() if count}
        for part in self._table.parts(share):
            entries = {name: part[name] for name in missing if name in part}
            chunks = {(name, chunk.offsets): chunk for name, entry in entries.items() for chunk in entry.chunks}
            for item, target in load_plan.reads(entries, {name: targets[name] for name in entries}):
                name = item.storage_index.fqn
                offset = item.storage_index.offset
                assert offset is not None
                reads.append((chunks[name, tuple(offset)], item, target))
                missing[name] -= item.lengths.numel()
            missing = {name: count for name, count in missing.items() if count}
            if not missing:
                return reads
        raise DamagedCheckpoint(f"{self.folder}: found no chunks for {sum(missing.values())} elements of {missing}")

    def _read_box(self, chunk: Chunk, dtype: torch.dtype, item: "ReadItem") -> Tensor:
        """The part of a chunk that `item` needs; only the rows of that part are read."""
        sizes = torch.Size(chunk.sizes)
        first_row = item.storage_offsets[0] if chunk.sizes else 0
        rows = item.lengths[0] if chunk.sizes else 1
        row_bytes = sizes[1:].numel() * dtype.itemsize
        count = rows * row_bytes
        data = self._read(chunk.file, chunk.begin + first_row * row_bytes, count)
        box = torch.frombuffer(data, dtype=dtype) if count else torch.empty(0, dtype=dtype)
        box = box.view(rows, *sizes[1:]) if chunk.sizes else box.view(())
        for axis in range(1, len(sizes)):
            box = box.narrow(axis, item.storage_offsets[axis], item.lengths[axis])
        return box

    def _read(self, name: str, begin: int, count: int) -> Bytes:
        """Bytes of a file, decrypted if it is encrypted."""
        if name not in self._encrypted:
            start = self._read_file(name, 0, min(len(encryption.MAGIC), self.manifest.files[name].bytes))
            self._encrypted[name] = encryption.is_encrypted(start)
        if not self._encrypted[name]:
            return self._read_file(name, begin, count)
        return encryption.read(self.folder / name, begin, count, self._key)

    @functools.cached_property
    def _key(self) -> encryption.Key | None:
        """The key of the training's configuration. Raises ValueError if its file cannot be read."""
        key_file = self.progress().config.get("storage", {}).get("key_file", "")
        return encryption.read_key(Path(key_file)) if key_file else None

    def _check_shapes(self, targets: Mapping[str, Tensor]) -> None:
        types = self._table.types
        faults = [f"{name}: not in the checkpoint" for name in targets if name not in types]
        faults += [
            f"{name}: found {list(types[name].shape)}, expected {list(target.shape)}"
            for name, target in targets.items()
            if name in types and types[name].shape != tuple(target.shape)
        ]
        if faults:
            raise ValueError(f"{self.folder}: this is a checkpoint of another model: {'; '.join(sorted(faults))}")


def _elements_here(target: Tensor) -> int:
    """How many elements of a tensor this rank holds."""
    # No isinstance: the import of DTensor takes 0.8 s of CPU.
    local: Any = target.to_local() if hasattr(target, "to_local") else target
    return int(local.numel())


def open_unverified(folder: Path, manifest_sha256: str) -> Contents:
    """The checkpoint in `folder`, of which only the manifest is verified.

    Raises DamagedCheckpoint unless the manifest has this SHA-256, and ValueError for a folder of another layout.
    """
    manifest = verification.read_manifest(folder, manifest_sha256)
    require_readable(manifest.layout, folder)
    return Contents(folder, manifest)


def open_verified(folder: Path, manifest_sha256: str, group: str = "") -> Contents:
    """The checkpoint in `folder`, with every byte verified; with a group, only the files that the group needs.

    Raises as `open_unverified`.
    """
    contents = open_unverified(folder, manifest_sha256)
    files = {*contents.files_of(group), PROGRESS} if group else contents.manifest.files
    contents.verify(files)
    return contents
