"""Readers of texts: the documents of a file as a stream, in memory bounded by the longest document, not by the file.

The name of a file tells its format. A place where no document can be read is given too, with one of a few reasons,
and is counted: bad content never raises, a disk or a server that fails does.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO

from assets.datasets.reading import columns, compression, lines, plain
from assets.datasets.reading.items import Text, UnfitDocument
from recipes.dataset import ReadingSection

LINES = (".jsonl", ".ndjson")
PARQUET = ".parquet"


def read(name: str, stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The documents of a file, in their order. The stream is buffered; the stream of a Parquet file can seek.

    Raises what the stream raises, and nothing because of what the file holds.
    """
    if is_parquet(name):
        return columns.read(stream, reading)
    codec, suffix = _format(name)
    opened = compression.decompressed(stream, codec) if codec else stream
    return lines.read(opened, reading) if suffix in LINES else plain.read(opened, reading)


def is_parquet(name: str) -> bool:
    """Whether a file's name says that it is Parquet; a compressed file is not."""
    return _format(name) == (None, PARQUET)


def _format(name: str) -> tuple[str | None, str]:
    """The compression, if any, and the suffix of the name without it."""
    path = PurePosixPath(name.lower())
    codec = compression.CODECS.get(path.suffix)
    return codec, path.with_suffix("").suffix if codec else path.suffix
