"""A file of JSON lines: one object a line, whose text stands in a field."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from assets.datasets.reading import limits
from assets.datasets.reading.compression import Damaged
from assets.datasets.reading.items import Text, Unfit
from recipes.dataset import Reading

CHUNK = 1 << 20
BESIDES = 1 << 20
"""Bytes of a line for what is not its text."""


def read(stream: BinaryIO, reading: Reading) -> Iterator[Text | Unfit]:
    """A document a line, blank lines aside; `text_field` may lead into objects by dots.

    A line longer than twice the longest text and a mebibyte is not kept in memory: JSON's escapes double a text
    of any script at most, but for control characters.
    """
    path, limit = reading.text_field.split("."), limits.text_bytes(reading)
    number = -1
    try:
        for number, line in enumerate(_lines(stream, 2 * limit + BESIDES)):
            if line is None:
                yield Unfit(number, "longer than the limit")
            elif line.strip():
                yield _document(number, line, path, limit)
    except Damaged as damage:
        yield Unfit(number + 1, damage.args[0])


def _lines(stream: BinaryIO, longest: int) -> Iterator[bytes | None]:
    """The lines without their ends; None for one of more than `longest` bytes."""
    while line := stream.readline(longest + 1):
        if len(line) <= longest:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(CHUNK)
        yield None


def _document(number: int, line: bytes, path: list[str], limit: int) -> Text | Unfit:
    try:
        value: Any = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return Unfit(number, "not UTF-8")
    except (ValueError, RecursionError):
        return Unfit(number, "malformed JSON")
    for field in path:
        value = value.get(field) if isinstance(value, dict) else None
    return limits.document(number, value, limit)
