"""Hashing while reading: the BLAKE3 of a stream's content, computed as the stream is read."""

import io
from typing import BinaryIO

from blake3 import blake3

CHUNK = 1 << 16


class Hashing(io.RawIOBase):
    """A stream that hashes what is read through it. It cannot seek, and closing it leaves the inner stream open."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream, self._hasher = stream, blake3()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        count: int = self._stream.readinto(buffer)  # type: ignore[attr-defined]
        self._hasher.update(memoryview(buffer)[:count])
        return count

    def digest_of_the_rest(self) -> str:
        """Read to the end; returns the BLAKE3 of everything that was read, 64 hex digits."""
        buffer = bytearray(CHUNK)
        while self.readinto(buffer):
            pass
        return self._hasher.hexdigest()
