"""Readers: the documents of a file, as a stream, in memory that the longest document bounds and the file does not.

A file's name tells its format. What cannot be a document is given too, with one of a few reasons, to be
counted: bad content never raises, a disk or a server that fails does.
"""

import io
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from assets.datasets.images import decoding
from assets.datasets.images.decoding import Picture
from assets.datasets.reading import columns, compression, lines, plain
from assets.datasets.reading.hashing import Hashing
from assets.datasets.reading.items import Text, Unfit
from assets.datasets.sources import Listing, SourceFile
from recipes.dataset import Images, Reading

LINES = (".jsonl", ".ndjson")
COLUMNS = ".parquet"
BUFFER = 1 << 18


def read(name: str, stream: BinaryIO, reading: Reading) -> Iterator[Text | Unfit]:
    """The documents of a file by its name, in their order. The stream is a buffered one; Parquet's can be sought in.

    Raises what the stream raises, and nothing for what the file holds.
    """
    codec, suffix = _format(name)
    if suffix == COLUMNS and codec is None:
        return columns.read(stream, reading)
    opened = compression.decompressed(stream, codec) if codec else stream
    return lines.read(opened, reading) if suffix in LINES else plain.read(opened, reading)


def _format(name: str) -> tuple[str | None, str]:
    """The compression, if any, and the suffix of what is inside."""
    path = PurePosixPath(name.lower())
    codec = compression.CODECS.get(path.suffix)
    return codec, path.with_suffix("").suffix if codec else path.suffix


class Opened:
    """One file of a source being read: iterate once over its documents, then `blake3` is that of its content.

    A file is read once, but a Parquet file twice: first from end to end for its hash, then as its footer says.
    Raises as `Listing.open` and its stream do.
    """

    def __init__(self, listing: Listing, file: SourceFile, reading: Reading, images: Images | None) -> None:
        self._listing, self._file, self._reading, self._images = listing, file, reading, images
        self._blake3: str | None = None

    def __iter__(self) -> Iterator[Text | Picture | Unfit]:
        with self._listing.open(self._file) as stream:
            if _format(self._file.name) == (None, COLUMNS):
                self._blake3 = Hashing(stream).digest_of_the_rest()
                stream.seek(0)
                yield from self._rows(stream)
                stream.seek(self._file.bytes)
                stream.read(1)
            else:
                hashing = Hashing(stream)
                buffered = io.BufferedReader(hashing, BUFFER)
                yield from read(self._file.name, cast(BinaryIO, buffered), self._reading)
                self._blake3 = hashing.digest_of_the_rest()

    def _rows(self, stream: BinaryIO) -> Iterator[Text | Picture | Unfit]:
        if self._images is None:
            return columns.read(stream, self._reading)
        return decoding.read(stream, self._images, self._reading)

    @property
    def blake3(self) -> str:
        """BLAKE3 of the whole file, 64 hex digits, once the iteration has ended."""
        assert self._blake3 is not None, "not read to the end yet"
        return self._blake3


def documents(listing: Listing, file: SourceFile, reading: Reading, images: Images | None = None) -> Opened:
    """The documents of a listed file, and the hash of its content in the same pass; texts, unless `images` is given."""
    return Opened(listing, file, reading, images)
