"""Readers of texts: the documents of a file as a stream, in memory bounded by the longest document, not by the file.

A file's content and its name tell its format. A place where no document can be read is given too, with one of a few
reasons, and is counted: bad content never raises, a disk or a server that fails does.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import BinaryIO

from slipway.assets.datasets.reading import (
    archives,
    columns,
    compression,
    encodings,
    formats,
    json_files,
    pages,
    plain,
    tables,
    web_archives,
    zips,
)
from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.document import Text, UnfitDocument
from slipway.assets.datasets.reading.formats import Format
from slipway.recipes.dataset import ReadingSection

PARQUET = ".parquet"
ZIP = ".zip"
READERS: Mapping[Format, Callable[[BinaryIO, ReadingSection], Iterator[Text | UnfitDocument]]] = {
    "text": plain.read,
    "lines": json_files.read_lines,
    "array": json_files.read_array,
    "object": json_files.read_object,
    "csv": tables.read,
    "html": pages.read,
    "warc": web_archives.read,
}

TOLD_BY_THEMSELVES: frozenset[Format] = frozenset({"html", "warc"})
"""Formats that name their own encoding."""


def read(name: str, stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The documents of a file, in their order. The stream is buffered; that of a file with an index can seek.

    Raises the stream's errors, but no errors because of the file's content.
    """
    if not has_index(name):
        return _documents(name, stream, reading)
    if _suffixes(name)[1] == PARQUET:
        return columns.read(stream, reading)
    return zips.read(stream, lambda member, data: _of_member(member, data, reading))


def has_index(name: str) -> bool:
    """Whether a file's name says that it is read by an index at its end, Parquet or zip; a compressed file is not."""
    packed, suffix = _suffixes(name)
    return not packed and suffix in (PARQUET, ZIP)


def _documents(name: str, stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    packed, suffix = _suffixes(name)
    try:
        file = formats.opened(stream)
        codec = compression.codec_of(packed, file.head)
        if codec:
            file = formats.opened(compression.decompressed(file.stream, codec))
    except DamagedFile as damage:
        yield UnfitDocument(0, damage.args[0])
        return
    format_name = reading.format or formats.format_of(suffix, file.head, reading.text_field)
    if isinstance(format_name, formats.Unread):
        yield UnfitDocument(0, format_name.reason)
    elif format_name == "tar":
        yield from archives.read(file.stream, lambda member, data: _of_member(member, data, reading))
    else:
        encoding = None if format_name in TOLD_BY_THEMSELVES else encodings.marked(file.head)
        content = encodings.as_utf8(file.stream, encoding) if encoding else file.stream
        yield from _reader(format_name, reading)(content, reading)


def _reader(
    format_name: Format, reading: ReadingSection
) -> Callable[[BinaryIO, ReadingSection], Iterator[Text | UnfitDocument]]:
    if format_name == "text" and reading.separator is not None:
        return plain.read_divided
    return READERS[format_name]


def _of_member(name: str, stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The documents of an archive's member: no archive, and no file whose index is at its end."""
    packed, suffix = _suffixes(name)
    file = formats.opened(stream)
    nested = packed or suffix in (PARQUET, ZIP) or formats.format_of(suffix, file.head, reading.text_field) == "tar"
    if nested:
        return iter([UnfitDocument(0, "packed inside an archive")])
    return _documents(name, file.stream, reading)


def _suffixes(name: str) -> tuple[str, str]:
    """The suffix of a compression, or nothing, and the suffix before it, in small letters."""
    path = PurePosixPath(name.lower())
    if path.suffix in compression.CODECS:
        return path.suffix, path.with_suffix("").suffix
    return "", path.suffix
