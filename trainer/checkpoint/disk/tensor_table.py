"""The tensor table of a checkpoint: its tensors and the places of their chunks, read only as far as needed.

In the layout "chunks/2" the table has its own files, which are hashed like those of the tensors::

    tensors.json          {"model/head.weight": {"dtype": "F32", "shape": [64, 32]}, ...}      every tensor, once
    tensors-<rank>.json   {"model/head.weight": {"dtype", "shape", "chunks": [...]}, ...}      the chunks of one rank

So each rank writes its own part, and a rank that resumes reads only the parts that it needs: its own one, if the layout
is the same. In "chunks/1", the layout of older checkpoints, the manifest has the whole table.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slipway.trainer.base import atomic, parsing, verify
from slipway.trainer.checkpoint.disk import reading
from slipway.trainer.checkpoint.disk.manifest import CheckpointManifest, TensorEntry, tensor_entry
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint, Read

TYPES = "tensors.json"
PART = re.compile(r"tensors-(\d+)\.json")

Entries = Mapping[str, TensorEntry]
"""Tensors by name; entries of `TYPES` have no chunks."""

Bring = Callable[[str], None]
"""Fetches a file of a checkpoint, by its name, to the folder where it is read, unless it is there.

Raises DamagedCheckpoint and OSError.
"""


def is_there(name: str) -> None:
    """The `Bring` of a folder that has all files."""


class TensorTable:
    """The table of one checkpoint in `folder`. Each of its files is verified when it is first used."""

    def __init__(
        self, folder: Path, manifest: CheckpointManifest, bring: Bring = is_there, read: Read | None = None
    ) -> None:
        self._read = read or reading.from_folder(folder)
        self._folder = folder
        self._manifest = manifest
        self._bring = bring
        self._parts = sorted(name for name in manifest.files if PART.fullmatch(name))
        self._decode_part = functools.cache(self._decoded)

    @functools.cached_property
    def types(self) -> Entries:
        """Every tensor's type and shape, by name. Raises DamagedCheckpoint and OSError."""
        if TYPES not in self._manifest.files:
            return self._manifest.tensors
        return self._decoded(TYPES)

    def parts(self, share: float = 0.0) -> Iterator[Entries]:
        """The chunks, part by part, beginning with the rank at `share` of all ranks. Raises as `types`.

        `share` is 0 for rank 0 of a reader, and r / n for rank r of n.
        """
        if not self._parts:
            yield self._manifest.tensors
        for number in order(int(share * len(self._parts)), len(self._parts)):
            yield self._decode_part(self._parts[number])

    def _decoded(self, name: str) -> Entries:
        self._bring(name)
        try:
            data = bytes(self._read(name, 0, None))
            with reading.finding_damage(self._folder / name):
                verify.data(data, self._manifest.files[name], self._folder / name)
            return {tensor: tensor_entry(entry) for tensor, entry in parsing.value(data).items()}
        except ValueError as error:
            raise DamagedCheckpoint(f"{self._folder / name}: cannot be decoded: {error}") from None


def order(first: int, count: int) -> Sequence[int]:
    """The parts in the order in which a rank reads them: order(3, 6) is [3, 0, 2, 4, 1, 5].

    Its own part is first. Rank 0's is next: it has the small tensors that are equal on all ranks. The nearest ones
    follow: they have the rank's slices if the number of ranks has changed.
    """
    return sorted(range(count), key=lambda number: (number != first, number != 0, abs(number - first), number))


def encode(entries: Entries) -> bytes:
    """The bytes of a file of the table; equal entries have equal bytes."""
    return atomic.canonical_json({name: _value(entry) for name, entry in entries.items()})


def part_name(rank: int) -> str:
    """The name of the file that has the chunks of one rank."""
    return f"tensors-{rank:05d}.json"


def _value(entry: TensorEntry) -> dict[str, Any]:
    value: dict[str, Any] = {"dtype": entry.dtype, "shape": entry.shape}
    if entry.chunks:
        value["chunks"] = [vars(chunk) for chunk in entry.chunks]
    return value
