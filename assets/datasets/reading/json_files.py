"""JSON files: lines of objects, one array of objects, or one object; each object has the text in a field.

A file with one object without that field, such as program data, is a single plain document.
"""

import codecs
import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from slipway.assets.datasets.reading import plain
from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.document import Text, UnfitDocument, about, document_of, longest_text, member
from slipway.assets.datasets.reading.encodings import decoded
from slipway.recipes.dataset import ReadingSection
from slipway.trainer.base import parsing

CHUNK = 1 << 20
BESIDES = 1 << 20
"""The most bytes of a line besides its text."""
BETWEEN = re.compile(r"[ \t\r\n,]*")
"""The separators of elements."""


def read_lines(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each line that is not blank; dots in `text_field` lead into objects.

    A line that is longer than twice the longest text and a mebibyte is not kept in memory: except for control
    characters, the escapes of JSON at most double the length of a text.
    """
    limit = longest_text(reading)
    number = -1
    try:
        for number, line in enumerate(_lines(stream, 2 * limit + BESIDES)):
            if line is None:
                yield UnfitDocument(number, "longer than the limit")
            elif line.strip():
                yield _document_of_line(number, line, reading)
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


def _document_of_line(number: int, line: bytes, reading: ReadingSection) -> Text | UnfitDocument:
    try:
        value = parsing.value(decoded(line, reading.encoding))
    except UnicodeError:
        return UnfitDocument(number, "not UTF-8")
    except ValueError:
        return UnfitDocument(number, "malformed JSON")
    fields = about(reading, lambda field: member(value, field))
    return document_of(number, member(value, reading.text_field), longest_text(reading), about=fields)


def read_array(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each element; dots in `text_field` lead into objects.

    What follows malformed JSON is lost, what follows an element longer than twice the longest text and a mebibyte, and
    what follows the array.
    Bytes that are not UTF-8 cost their element and no other one.
    """
    limit = longest_text(reading)
    number = -1
    try:
        for number, value in enumerate(_elements(stream, 2 * limit + BESIDES)):
            fields = about(reading, functools.partial(member, value))
            yield document_of(number, member(value, reading.text_field), limit, reading.encoding, about=fields)
    except DamagedFile as damage:
        yield UnfitDocument(number + 1, damage.args[0])
    except _LongElement:
        yield UnfitDocument(number + 1, "an element longer than the limit")
    except (ValueError, RecursionError):
        yield UnfitDocument(number + 1, "malformed array")


class _LongElement(Exception):
    """An element that is longer than the limit, or malformed and followed by that much."""


def _elements(stream: BinaryIO, longest: int) -> Iterator[Any]:
    """The elements of an array. Raises ValueError for malformed JSON, _LongElement for an element of more than
    `longest` characters, DamagedFile for an array without its end, and what the stream raises."""
    decode = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode
    parse = json.JSONDecoder().raw_decode
    text = decode(stream.read(CHUNK)).lstrip()
    if not text.startswith("["):
        raise ValueError("expected an array")
    text = text[1:]
    ended = False
    while True:
        at = 0
        while (at := _behind_blanks(text, at)) < len(text):
            if text[at] == "]":
                return _require_end(text[at + 1 :], iter(lambda: decode(stream.read(CHUNK)), ""))
            try:
                value, behind = parse(text, at)
            except ValueError:
                if len(text) - at > longest:
                    raise _LongElement from None
                if ended:
                    raise
                break
            yield value
            at = behind
        if ended:
            raise DamagedFile("truncated")
        chunk = stream.read(CHUNK)
        ended = not chunk
        text = text[at:] + decode(chunk, final=ended)


def _behind_blanks(text: str, at: int) -> int:
    """The place of the next element, from `at` on."""
    match = BETWEEN.match(text, at)
    assert match is not None, "it may be empty"
    return match.end()


def _require_end(rest: str, following: Iterable[str]) -> None:
    """Read the rest after an array. Raises ValueError for more than blanks, such as a second array."""
    if any(text.strip() for text in itertools.chain([rest], following)):
        raise ValueError("expected nothing behind the array")


def read_object(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The one document of the file; the limit applies to the whole file, including other fields."""

    def document(number: int, data: bytes, limit: int) -> Text | UnfitDocument:
        try:
            value = parsing.value(data.decode("utf-8-sig") if len(data) <= limit else "")
        except ValueError:
            value = None
        text = member(value, reading.text_field)
        if not isinstance(text, str):
            return document_of(number, data, limit, reading.encoding, detect=True)
        return document_of(number, text, limit, about=about(reading, lambda field: member(value, field)))

    return plain.read_undivided(stream, reading, document)
