"""Text tables: rows separated by commas, tabs, semicolons or bars (RFC 4180), whose first row names the columns."""

import csv
import functools
import io
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.document import Text, UnfitDocument, about, document_of, longest_text
from slipway.recipes.dataset import ReadingSection

SEPARATORS = ",\t;|"
LONGEST_HEAD = 1 << 16
"""The most characters of the row with the columns' names."""
BESIDES = 1 << 20
"""The most characters of a line besides its text."""


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each row: its column `text_field`. The names of the columns show what separates them.

    A table without the column is set aside as one document, because it has no texts. Everything after a field that is
    too long is lost, and everything inside an unclosed quotation.
    """
    csv.field_size_limit(max(longest_text(reading), 1 << 17))
    # Bytes that are not UTF-8 are kept, so that only their own row is lost.
    text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
    number = -1
    try:
        columns, separator = _columns(_head(text), reading.text_field)
        if reading.text_field not in columns:
            yield UnfitDocument(0, "no text field")
            return
        lines = _Lines(text, 2 * longest_text(reading) + BESIDES)
        for number, row in enumerate(csv.reader(lines, delimiter=separator)):
            if lines.ended:
                yield UnfitDocument(number, "malformed table")
            elif row:
                yield _document(number, dict(zip(columns, row, strict=False)), reading)
    except DamagedFile as damage:
        yield UnfitDocument(number + 1, damage.args[0])
    except csv.Error as error:
        too_long = isinstance(error, _LongLine) or "field larger than field limit" in str(error)
        yield UnfitDocument(number + 1, "a row longer than the limit" if too_long else "malformed table")


def _head(text: io.TextIOWrapper) -> str:
    """The row with the names of the columns; a quoted name may contain newlines."""
    head = text.readline(LONGEST_HEAD)
    while head.count('"') % 2 and len(head) < LONGEST_HEAD and (more := text.readline(LONGEST_HEAD)):
        head += more
    return head


def _columns(head: str, column: str) -> tuple[list[str], str]:
    """The names of the columns, and the separator between which one of them is `column`."""
    columns = list[str]()
    for separator in SEPARATORS:
        columns = next(csv.reader(io.StringIO(head, newline=""), delimiter=separator), [])
        if column in columns:
            return columns, separator
    return columns, separator


def _document(number: int, row: Mapping[str, str], reading: ReadingSection) -> Text | UnfitDocument:
    fields = about(reading, functools.partial(_value, row))
    limit = longest_text(reading)
    return document_of(number, row.get(reading.text_field), limit, reading.encoding, about=fields)


def _value(row: Mapping[str, str], column: str) -> str | None:
    return row.get(column)


class _LongLine(csv.Error):
    """A line that is too long to read into memory."""


class _Lines:
    """The lines of a table, and whether a row needed more lines than there are.

    Quotation marks at most double the length of a text, so a line of more than `longest` characters is too long.
    """

    def __init__(self, text: io.TextIOWrapper, longest: int) -> None:
        self._text = text
        self._longest = longest
        self.ended = False

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._text.readline(self._longest + 1)
        if len(line) > self._longest:
            raise _LongLine
        self.ended = not line
        if self.ended:
            raise StopIteration
        return line
