"""Copying: one shard from the first origin that has it whole, hashed while it is written.

An interrupted copy continues where it ended, from any origin: all origins have the same bytes under the same name, and
the hash of the whole file detects an origin with other bytes.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from slipway.trainer.base import paths, verify
from slipway.trainer.base.progress import Meter
from slipway.trainer.data import shards
from slipway.trainer.objects.origin import Missing, Origin, Unreachable
from slipway.trainer.staging.nvme import naming

CHUNK = 256 << 10
"""Bytes read, hashed and written at a time: few enough that they are hashed and written from a core's L2 cache."""


class FaultKind(StrEnum):
    """The kinds of an origin's faults."""

    MISSING = "missing"
    AWAY = "away"
    """It did not answer, broke off, or stalled."""
    WRONG = "wrong"
    """It gave other bytes than the shard's."""


@dataclass(frozen=True)
class OriginFault:
    """The fault of one origin at a request for one shard."""

    origin: Origin
    kind: FaultKind
    text: str

    def __str__(self) -> str:
        return self.text


class NoOrigin(ValueError):
    """No origin has the whole shard; `faults` has the fault of each."""

    def __init__(self, shard: shards.ShardFile, faults: Sequence[OriginFault]) -> None:
        super().__init__(f"{name_of(shard)}: no origin has it whole: {'; '.join(map(str, faults))}")
        self.faults = tuple(faults)


@dataclass(frozen=True)
class Copied:
    """A completed shard: the bytes that came from origins, and the faults of the origins before."""

    bytes: int = 0
    faults: tuple[OriginFault, ...] = ()


def complete(shard: shards.ShardFile, file: io.FileIO, origins: Sequence[Origin], meter: Meter) -> Copied:
    """Complete `file`, which has the bytes of an earlier attempt, to the whole shard.

    Raises NoOrigin, with the faults, if no origin has the whole shard; and OSError, which names the file, if it cannot
    be written. The bytes from an origin that broke off stay in the file.
    """
    copy = _Copy(shard, file, meter)
    faults: list[OriginFault] = []
    if copy.is_whole():
        return Copied()
    for origin in origins:
        fault = _take(copy, origin)
        if fault is None:
            return Copied(copy.byte_count, tuple(faults))
        faults.append(fault)
    raise NoOrigin(shard, faults)


def name_of(shard: shards.ShardFile) -> str:
    """The shard's name at an origin."""
    return paths.named(paths.SHARDS, shard.blake3)


def _take(copy: "_Copy", origin: Origin) -> OriginFault | None:
    """Continue the copy from the origin, and begin anew if the result is not the shard; returns the fault.

    The first bytes may come from another, damaged origin: only a copy from the beginning proves a fault of this one.
    """
    try:
        resumed = copy.size > 0
        copy.take_from(origin)
        if not copy.is_whole() and resumed:
            copy.restart()
            copy.take_from(origin)
        copy.check(f"{origin}: {name_of(copy.shard)}")
    except Missing as error:
        return OriginFault(origin, FaultKind.MISSING, str(error))
    except Unreachable as error:
        return OriginFault(origin, FaultKind.AWAY, str(error))
    except verify.Mismatch as error:
        copy.restart()
        return OriginFault(origin, FaultKind.WRONG, str(error))
    return None


class _Copy:
    """A growing copy: its file, and the hash of its content."""

    def __init__(self, shard: shards.ShardFile, file: io.FileIO, meter: Meter) -> None:
        self.shard = shard
        self.byte_count = 0
        self._file = file
        self._meter = meter
        self._tally = verify.RunningDigest()
        while chunk := file.read(CHUNK):
            self._take_in(chunk)
        if self.size > shard.bytes or (self.size == shard.bytes and not self.is_whole()):
            self.restart()

    @property
    def size(self) -> int:
        """Bytes that the file holds."""
        return self._tally.bytes

    def is_whole(self) -> bool:
        return verify.matches(self._tally, self.shard)

    def check(self, where: str) -> None:
        """Raises verify.Mismatch unless the file holds the shard."""
        verify.check(self._tally, self.shard, where)

    def restart(self) -> None:
        """Discard all that the file holds."""
        self._file.truncate(0)
        self._file.seek(0)
        self._meter.add(-self.size)
        self._tally = verify.RunningDigest()

    def take_from(self, origin: Origin) -> None:
        """Append the origin's bytes after those of the file. Raises Missing and Unreachable."""
        with origin.open(name_of(self.shard), self.size) as stream:
            while self.size <= self.shard.bytes and (chunk := _read(stream, f"{origin}: {name_of(self.shard)}")):
                self._append(chunk)
                self._take_in(chunk)
                self.byte_count += len(chunk)

    def _append(self, chunk: bytes) -> None:
        """Write to the file; on a full disk, remove the copy, so that the disk has room again."""
        rest = memoryview(chunk)
        try:
            with naming(Path(str(self._file.name))):
                while rest:
                    rest = rest[self._file.write(rest) :]
        except OSError:
            self.restart()
            raise

    def _take_in(self, chunk: bytes) -> None:
        self._tally.add(chunk)
        self._meter.add(len(chunk))


def _read(stream: BinaryIO, where: str) -> bytes:
    """The next chunk. Raises Unreachable, also when a file system fails in the middle of a file."""
    try:
        return stream.read(CHUNK) or b""
    except OSError as error:
        raise Unreachable(f"{where}: {error.strerror or error}") from error
