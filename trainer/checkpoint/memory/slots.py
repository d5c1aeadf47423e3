"""The buffers of a node's ranks. The supervisor owns them, so their states outlive the ranks, and die with the node.

The supervisor makes the buffers before it forks ranks, which find their descriptors in the environment. A rank that no
supervisor started makes its own buffers.

A buffer is a memfd (`slipway.trainer.checkpoint.saving.buffer`) with the files of a rank's part of a checkpoint as
ranges of bytes. When all of them are complete, the seal follows, with which another process can verify them: a
`HeldPart` as JSON, and then 56 bytes with its place::

    b"SLIPHELD" | first byte (8) | length (8) | BLAKE3 of the JSON (32)          numbers little-endian

A buffer has no seal while it is being filled: the seal is cut off before, and written after. So a rank may be killed at
any moment, and leaves a whole state or none.
"""

import contextlib
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blake3 import blake3

from slipway.trainer.base import atomic, parsing
from slipway.trainer.config.operation import Storage
from slipway.trainer.record import causes
from slipway.trainer.record.fence import Token

VARIABLE = "SLIPWAY_MEMORY"
"""The descriptors of a rank's buffers."""
SAVED_FROM = 2
"""One buffer that is being written to a tier, and one to fill meanwhile."""
DOUBTED = (causes.CORRUPTION, causes.DIVERGED, causes.SPIKE)
"""After an end with one of these causes, no state in memory is used."""
MARK = b"SLIPHELD"
_TRAILER = struct.Struct("<8sQQ32s")
Age = tuple[int, int]
"""The generation and the step, which order states: a later generation continued from a state that it had checked."""


def count(storage: Storage) -> int:
    """The buffers of a rank. If states are held in memory alone, one more keeps the newest while another is filled."""
    return SAVED_FROM + (storage.memory_steps > 0)


def make(storage: Storage, ranks: int) -> tuple[tuple[int, ...], ...]:
    """New, empty buffers for each rank of a node; forked processes inherit them."""
    return tuple(tuple(os.memfd_create("checkpoint", 0) for _ in range(count(storage))) for _ in range(ranks))


def named(descriptors: Sequence[int]) -> dict[str, str]:
    """The environment variable with a rank's buffers."""
    return {VARIABLE: ",".join(map(str, descriptors))}


def from_environment(environment: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """The buffers of this rank that its supervisor owns; none without a supervisor."""
    return tuple(map(int, filter(None, environment.get(VARIABLE, "").split(","))))


def forget(buffers: Sequence[Sequence[int]]) -> None:
    """Unseal all these buffers, so that no rank continues from their states."""
    for rank_buffers in buffers:
        for descriptor in rank_buffers:
            remove(descriptor)


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
    """The number of ranks that hold parts of the state."""
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
    """Seal a buffer that has all its files."""
    data = atomic.canonical_json(asdict(part))
    begin = os.fstat(descriptor).st_size
    trailer = _TRAILER.pack(MARK, begin, len(data), blake3(data).digest())
    os.pwrite(descriptor, data, begin)
    os.pwrite(descriptor, trailer, begin + len(data))


def remove(descriptor: int) -> None:
    """Unseal a buffer. Its size does not change, because a process may have mapped it."""
    size = os.fstat(descriptor).st_size
    if size >= _TRAILER.size:
        os.pwrite(descriptor, bytes(_TRAILER.size), size - _TRAILER.size)


def read(descriptor: int) -> HeldPart | None:
    """The part that a buffer holds; None if it is not sealed."""
    size = os.fstat(descriptor).st_size
    if size < _TRAILER.size:
        return None
    mark, begin, length, digest = _TRAILER.unpack(os.pread(descriptor, _TRAILER.size, size - _TRAILER.size))
    if mark != MARK or begin + length + _TRAILER.size != size:
        return None
    data = os.pread(descriptor, length, begin)
    if blake3(data).digest() != digest:
        return None
    with contextlib.suppress(ValueError, TypeError, KeyError):  # another version under the same supervisor wrote it
        value = parsing.value(data)
        files = {name: HeldFile(**file) for name, file in value.pop("files").items()}
        if all(file.begin + file.bytes <= begin for file in files.values()):
            return HeldPart(files=files, **value)
    return None


def complete(parts_by_rank: Sequence[Sequence[tuple[Age, int, int]]]) -> list[Age]:
    """The states of which the ranks have every part, the newest first.

    `parts_by_rank`: for each state of a rank, its age, the number of the rank's part, and the number of all parts.
    """
    parts: dict[tuple[Age, int], set[int]] = {}
    for age, number, count in (part for offered in parts_by_rank for part in offered):
        parts.setdefault((age, count), set()).add(number)
    return sorted({age for (age, count), numbers in parts.items() if len(numbers) == count}, reverse=True)
