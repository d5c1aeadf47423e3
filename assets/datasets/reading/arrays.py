"""Files of one JSON array: each element is an object with the text in a field. They are read element by element."""

import codecs
import functools
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from assets.datasets.reading import limits
from assets.datasets.reading.about import about, member
from assets.datasets.reading.compression import DamagedFile
from assets.datasets.reading.items import Text, UnfitDocument
from assets.datasets.reading.lines import BESIDES
from recipes.dataset import ReadingSection

CHUNK = 1 << 20
BETWEEN = " \t\r\n,"
"""What stands between elements."""


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each element; dots in `text_field` lead into objects.

    What follows malformed JSON is lost, and what follows an element longer than twice the longest text and a mebibyte.
    Bytes that are not UTF-8 cost their element and no other one.
    """
    limit = limits.text_bytes(reading)
    number = -1
    try:
        for number, value in enumerate(_elements(stream, 2 * limit + BESIDES)):
            fields = about(reading, functools.partial(member, value))
            yield limits.document(number, member(value, reading.text_field), limit, reading.encoding, about=fields)
    except DamagedFile as damage:
        yield UnfitDocument(number + 1, damage.args[0])
    except (ValueError, RecursionError):
        yield UnfitDocument(number + 1, "malformed array")


def _elements(stream: BinaryIO, longest: int) -> Iterator[Any]:
    """The elements of an array. Raises ValueError for malformed JSON and for an element of more than `longest`
    characters, DamagedFile for an array without its end, and what the stream raises."""
    decode, parse = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode, json.JSONDecoder().raw_decode
    text = decode(stream.read(CHUNK)).lstrip()
    if not text.startswith("["):
        raise ValueError("expected an array")
    text, ended = text[1:], False
    while True:
        at = 0
        while (at := len(text) - len(text[at:].lstrip(BETWEEN))) < len(text):
            if text[at] == "]":
                return
            try:
                value, behind = parse(text, at)
            except ValueError:
                if ended or len(text) - at > longest:
                    raise
                break
            yield value
            at = behind
        if ended:
            raise DamagedFile("truncated")
        chunk = stream.read(CHUNK)
        ended = not chunk
        text = text[at:] + decode(chunk, final=ended)
