"""The seal: what makes the bytes in a buffer one rank's part of a checkpoint, which another process can verify.

A buffer is a memfd (`slipway.trainer.checkpoint.saving.buffer`) with the files of a rank's part as ranges of bytes.
Behind them, once every one of them is there, stands the seal: a `HeldPart` as JSON, and last of all 56 bytes with its
place::

    b"SLIPHELD" | first byte (8) | length (8) | BLAKE3 of the JSON (32)          numbers little-endian

A buffer that is being filled has no seal: it is cut off before, and written after. So a rank may be killed at any
moment, and what it leaves is either whole or not there.
"""

import contextlib
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blake3 import blake3

from slipway.trainer.base import atomic, parsing
from slipway.trainer.record.fence import Token

MARK = b"SLIPHELD"
_TRAILER = struct.Struct("<8sQQ32s")


Age = tuple[int, int]
"""What orders states: the generation and the step. A later generation went on from what it found good."""


@dataclass(frozen=True)
class HeldFile:
    """A file of a rank's part, as a range of bytes in its buffer."""

    begin: int
    bytes: int
    blake3: str


@dataclass(frozen=True)
class HeldPart:
    """One rank's part of the state of a training after a step."""

    incarnation: int
    generation: int
    step: int
    rank: int
    size: int
    """The number of ranks that hold parts of it."""
    files: Mapping[str, HeldFile]
    random_state: Mapping[str, Any]
    values: Mapping[str, Any]
    progress: Mapping[str, Any]
    """The content of progress.json; only of rank 0."""

    @property
    def token(self) -> Token:
        return Token(self.incarnation, self.generation)

    @property
    def age(self) -> Age:
        return self.generation, self.step


def write(descriptor: int, part: HeldPart) -> None:
    """Seal a buffer, whose files are all in it."""
    data, begin = atomic.canonical_json(asdict(part)), os.fstat(descriptor).st_size
    trailer = _TRAILER.pack(MARK, begin, len(data), blake3(data).digest())
    os.pwrite(descriptor, data, begin)
    os.pwrite(descriptor, trailer, begin + len(data))


def remove(descriptor: int) -> None:
    """Unseal a buffer, which a process may have mapped: its size stays."""
    size = os.fstat(descriptor).st_size
    if size >= _TRAILER.size:
        os.pwrite(descriptor, bytes(_TRAILER.size), size - _TRAILER.size)


def read(descriptor: int) -> HeldPart | None:
    """What a buffer holds; None for one that is not sealed."""
    size = os.fstat(descriptor).st_size
    if size < _TRAILER.size:
        return None
    mark, begin, length, digest = _TRAILER.unpack(os.pread(descriptor, _TRAILER.size, size - _TRAILER.size))
    if mark != MARK or begin + length + _TRAILER.size != size:
        return None
    data = os.pread(descriptor, length, begin)
    if blake3(data).digest() != digest:
        return None
    with contextlib.suppress(ValueError, TypeError, KeyError):  # of another version, which had this supervisor too
        value = parsing.value(data)
        files = {name: HeldFile(**file) for name, file in value.pop("files").items()}
        if all(file.begin + file.bytes <= begin for file in files.values()):
            return HeldPart(files=files, **value)
    return None


def whole(offers: Sequence[Sequence[tuple[Age, int, int]]]) -> list[Age]:
    """The states of which somebody has every part, the newest first.

    `offers` are by rank: of each state that it has, the age, the number of the part, and how many parts there are.
    """
    parts: dict[tuple[Age, int], set[int]] = {}
    for age, number, count in (each for offered in offers for each in offered):
        parts.setdefault((age, count), set()).add(number)
    return sorted({age for (age, count), numbers in parts.items() if len(numbers) == count}, reverse=True)
