"""Copying: one shard from the first origin that has it whole, hashed while it is written.

A copy that was broken off is continued where it ended, from whichever origin answers: the origins hold the same
bytes under the same name, and the hash of the whole tells when one of them does not.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from trainer import shards
from trainer.nvme import naming
from trainer.origins import Missing, Origin, Unreachable
from trainer.progress import Meter

CHUNK = 256 << 10
"""Bytes read, hashed and written at a time: few enough that they are hashed and written from a core's L2 cache."""


@dataclass(frozen=True)
class Copied:
    """How a shard was completed: bytes that came from origins, and what was wrong with those before."""

    bytes: int = 0
    faults: tuple[str, ...] = ()


def complete(shard: shards.File, file: io.FileIO, origins: Sequence[Origin], meter: Meter) -> Copied:
    """Make `file`, which holds what an earlier attempt left, the whole shard.

    Raises ValueError when no origin has the shard whole, with what was found at each, and OSError, naming the
    file, when it cannot be written. What came from an origin that broke off stays in the file.
    """
    copy = _Copy(shard, file, meter)
    faults: list[str] = []
    for origin in origins:
        if copy.is_whole():
            break
        if fault := _take(copy, origin):
            faults.append(fault)
    if copy.is_whole():
        return Copied(copy.moved, tuple(faults))
    raise ValueError(f"{name_of(shard)}: no origin has it whole: {'; '.join(faults)}")


def name_of(shard: shards.File) -> str:
    """The shard's name at an origin."""
    return f"shards/{shard.blake3}.shard"


def _take(copy: "_Copy", origin: Origin) -> str | None:
    """Continue the copy from the origin, and begin it anew where that does not give the shard; says what is wrong.

    What was there before may be of an origin that is damaged, so only a copy made from the beginning blames one.
    """
    try:
        resumed = copy.size > 0
        copy.take_from(origin)
        if not copy.is_whole() and resumed:
            copy.restart()
            copy.take_from(origin)
    except (Missing, Unreachable) as error:
        return str(error)
    if copy.is_whole():
        return None
    found = copy.found()
    copy.restart()
    return f"{origin}: {name_of(copy.shard)}: damaged: {found}"


class _Copy:
    """A growing copy: its file, and the hash of what the file holds."""

    def __init__(self, shard: shards.File, file: io.FileIO, meter: Meter) -> None:
        self.shard, self.size, self.moved = shard, 0, 0
        self._file, self._meter, self._hasher = file, meter, blake3()
        while chunk := file.read(CHUNK):
            self._take_in(chunk)
        if self.size > shard.bytes or (self.size == shard.bytes and not self.is_whole()):
            self.restart()

    def is_whole(self) -> bool:
        return self.size == self.shard.bytes and self._hasher.hexdigest() == self.shard.blake3

    def found(self) -> str:
        size = f"more than {self.shard.bytes}" if self.size > self.shard.bytes else str(self.size)
        return (
            f"found {size} bytes with BLAKE3 {self._hasher.hexdigest()}, "
            f"expected {self.shard.bytes} bytes with BLAKE3 {self.shard.blake3}"
        )

    def restart(self) -> None:
        """Forget all that is there."""
        self._file.truncate(0)
        self._file.seek(0)
        self._meter.add(-self.size)
        self.size, self._hasher = 0, blake3()

    def take_from(self, origin: Origin) -> None:
        """Append what the origin has beyond this. Raises Missing and Unreachable."""
        with origin.open(name_of(self.shard), self.size) as stream:
            while self.size <= self.shard.bytes and (chunk := _read(stream, f"{origin}: {name_of(self.shard)}")):
                self._append(chunk)
                self._take_in(chunk)
                self.moved += len(chunk)

    def _append(self, chunk: bytes) -> None:
        """Write to the file; a disk that is full has room again afterwards, since the copy is given up."""
        rest = memoryview(chunk)
        try:
            with naming(Path(str(self._file.name))):
                while rest:
                    rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(0)
            raise

    def _take_in(self, chunk: bytes) -> None:
        self._hasher.update(chunk)
        self.size += len(chunk)
        self._meter.add(len(chunk))


def _read(stream: BinaryIO, where: str) -> bytes:
    """The next chunk; Unreachable, too, when a file system fails in the middle of a file."""
    try:
        return stream.read(CHUNK) or b""
    except OSError as error:
        raise Unreachable(f"{where}: {error.strerror or error}") from error
