"""Files of one JSON array: each element is an object with the text in a field. They are read element by element."""

import codecs
import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from slipway.assets.datasets.reading import limits
from slipway.assets.datasets.reading.about import about, member
from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.items import Text, UnfitDocument
from slipway.assets.datasets.reading.lines import BESIDES
from slipway.recipes.dataset import ReadingSection

CHUNK = 1 << 20
BETWEEN = re.compile(r"[ \t\r\n,]*")
"""What stands between elements."""


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each element; dots in `text_field` lead into objects.

    What follows malformed JSON is lost, what follows an element longer than twice the longest text and a mebibyte, and
    what follows the array.
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
    except _LongElement:
        yield UnfitDocument(number + 1, "an element longer than the limit")
    except (ValueError, RecursionError):
        yield UnfitDocument(number + 1, "malformed array")


class _LongElement(Exception):
    """An element that does not end within the longest one, or that is malformed and of which the array has as much."""


def _elements(stream: BinaryIO, longest: int) -> Iterator[Any]:
    """The elements of an array. Raises ValueError for malformed JSON, _LongElement for an element of more than
    `longest` characters, DamagedFile for an array without its end, and what the stream raises."""
    decode, parse = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode, json.JSONDecoder().raw_decode
    text = decode(stream.read(CHUNK)).lstrip()
    if not text.startswith("["):
        raise ValueError("expected an array")
    text, ended = text[1:], False
    while True:
        at = 0
        while (at := _behind_blanks(text, at)) < len(text):
            if text[at] == "]":
                return _end(text[at + 1 :], iter(lambda: decode(stream.read(CHUNK)), ""))
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
    found = BETWEEN.match(text, at)
    assert found is not None, "it may be empty"
    return found.end()


def _end(rest: str, following: Iterable[str]) -> None:
    """Read what stands behind an array. Raises ValueError where that is more than blanks, such as a second array."""
    if any(text.strip() for text in itertools.chain([rest], following)):
        raise ValueError("expected nothing behind the array")
