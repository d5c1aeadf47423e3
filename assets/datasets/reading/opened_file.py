"""An opened file: reads one file of a source and hashes its content in the same pass."""

import io
from collections.abc import Callable, Iterator
from typing import BinaryIO, Generic, TypeVar, cast

from blake3 import blake3

from slipway.assets.datasets.reading.readers import has_index
from slipway.assets.datasets.reading.sources import SourceFile, SourceListing

BUFFER = 1 << 18
Document = TypeVar("Document")

CHUNK = 1 << 16


class OpenedFile(Generic[Document]):
    """One file of a source: iterate once over its documents, and then `blake3` is the hash of its content.

    `read` yields the documents of a file from its name and its stream. A file is read once, but Parquet and zip twice:
    first completely for the hash, and then by the index. Raises as `SourceListing.open` and its stream do.
    """

    def __init__(
        self, listing: SourceListing, file: SourceFile, read: Callable[[str, BinaryIO], Iterator[Document]]
    ) -> None:
        self._listing = listing
        self._file = file
        self._read = read
        self._blake3: str | None = None

    def __iter__(self) -> Iterator[Document]:
        with self._listing.open(self._file) as stream:
            if has_index(self._file.name):
                self._blake3 = Hashing(stream).digest_of_the_rest()
                stream.seek(0)
                yield from self._read(self._file.name, stream)
                stream.seek(self._file.bytes)
                stream.read(1)
            else:
                hashing = Hashing(stream)
                buffered = io.BufferedReader(hashing, BUFFER)
                yield from self._read(self._file.name, cast(BinaryIO, buffered))
                self._blake3 = hashing.digest_of_the_rest()

    @property
    def blake3(self) -> str:
        """BLAKE3 of the whole file, 64 hex digits, after the iteration."""
        assert self._blake3 is not None, "not read to the end yet"
        return self._blake3


class Hashing(io.RawIOBase):
    """A stream that hashes the data read through it. It cannot seek, and closing it leaves the inner stream open."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self._hasher = blake3()

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
