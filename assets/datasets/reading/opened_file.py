"""An opened file: one file of a source while it is read, whose content is hashed in the same pass."""

import io
from collections.abc import Callable, Iterator
from typing import BinaryIO, Generic, TypeVar, cast

from slipway.assets.datasets.reading.hashing import Hashing
from slipway.assets.datasets.reading.readers import has_index
from slipway.assets.datasets.reading.sources import SourceFile, SourceListing

BUFFER = 1 << 18
Document = TypeVar("Document")


class OpenedFile(Generic[Document]):
    """One file of a source being read: iterate once over its documents, then `blake3` is that of its content.

    `read` gives the documents of a file from its name and its stream. A file is read once, but Parquet and zip twice:
    first from end to end for its hash, then as its index says. Raises as `SourceListing.open` and its stream do.
    """

    def __init__(
        self, listing: SourceListing, file: SourceFile, read: Callable[[str, BinaryIO], Iterator[Document]]
    ) -> None:
        self._listing, self._file, self._read = listing, file, read
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
        """BLAKE3 of the whole file, 64 hex digits, once the iteration has ended."""
        assert self._blake3 is not None, "not read to the end yet"
        return self._blake3
