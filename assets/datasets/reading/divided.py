"""Divided files: plain files in which a separator stands between documents, such as a newline or `<|endoftext|>`."""

import io
from collections.abc import Iterator
from typing import BinaryIO, cast

from slipway.assets.datasets.reading import limits
from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.items import Text, UnfitDocument
from slipway.recipes.dataset import ReadingSection

CHUNK = 1 << 18


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each part that is not blank, numbered by its place among all parts.

    A part that is longer than the limit is not kept in memory.
    """
    assert reading.separator is not None, "only files of a recipe with a separator are divided"
    limit, number = limits.text_bytes(reading), -1
    try:
        for number, part in enumerate(_parts(stream, reading.separator.encode(), limit)):
            if part is None:
                yield UnfitDocument(number, "longer than the limit")
            elif part.strip():
                yield limits.document(number, part, limit, reading.encoding)
    except DamagedFile as damage:
        yield UnfitDocument(number + 1, damage.args[0])


def _parts(stream: BinaryIO, separator: bytes, longest: int) -> Iterator[bytes | None]:
    """What stands between separators, with None for more than `longest` bytes."""
    waiting, too_long = b"", False
    while chunk := cast(io.BufferedReader, stream).read1(CHUNK):  # what is there, up to damage
        # The part before the first separator may have begun in earlier chunks, and a separator may be cut in two.
        *ended, waiting = (waiting + chunk).split(separator)
        for part in ended:
            yield None if too_long or len(part) > longest else part
            too_long = False
        if len(waiting) > longest + len(separator):
            waiting, too_long = waiting[-len(separator) :], True
    yield None if too_long or len(waiting) > longest else waiting
