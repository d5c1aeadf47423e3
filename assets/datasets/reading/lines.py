"""Files of JSON lines: each line is an object with the text in a field."""

from collections.abc import Iterator
from typing import BinaryIO

from slipway.assets.datasets.reading import limits
from slipway.assets.datasets.reading.about import about, member
from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.encodings import decoded
from slipway.assets.datasets.reading.items import Text, UnfitDocument
from slipway.recipes.dataset import ReadingSection
from slipway.trainer.base import parsing

CHUNK = 1 << 20
BESIDES = 1 << 20
"""Bytes of a line besides its text."""


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each line that is not blank; dots in `text_field` lead into objects.

    A line that is longer than twice the longest text and a mebibyte is not kept in memory: except for control
    characters, the escapes of JSON at most double the length of a text.
    """
    limit = limits.text_bytes(reading)
    number = -1
    try:
        for number, line in enumerate(_lines(stream, 2 * limit + BESIDES)):
            if line is None:
                yield UnfitDocument(number, "longer than the limit")
            elif line.strip():
                yield _document(number, line, reading)
    except DamagedFile as damage:
        yield UnfitDocument(number + 1, damage.args[0])


def _lines(stream: BinaryIO, longest: int) -> Iterator[bytes | None]:
    """The lines, with None for a line of more than `longest` bytes."""
    while line := stream.readline(longest + 1):
        if len(line) <= longest:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(CHUNK)
        yield None


def _document(number: int, line: bytes, reading: ReadingSection) -> Text | UnfitDocument:
    try:
        value = parsing.value(decoded(line, reading.encoding))
    except UnicodeError:
        return UnfitDocument(number, "not UTF-8")
    except ValueError:
        return UnfitDocument(number, "malformed JSON")
    fields = about(reading, lambda field: member(value, field))
    return limits.document(number, member(value, reading.text_field), limits.text_bytes(reading), about=fields)
