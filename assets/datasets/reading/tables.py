"""Tables of text: comma- or tab-separated rows (RFC 4180), whose first row names the columns."""

import csv
import functools
import io
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from assets.datasets.reading import limits
from assets.datasets.reading.about import about
from assets.datasets.reading.compression import DamagedFile
from assets.datasets.reading.items import Text, UnfitDocument
from recipes.dataset import ReadingSection


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each row: its column `text_field`. The first row tells whether tabs or commas are between.

    A table without the column is set aside as one document: it is no table of texts.
    """
    limit = limits.text_bytes(reading)
    csv.field_size_limit(max(limit, 1 << 17))
    text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    number = -1
    try:
        head = text.readline()
        columns = next(csv.reader([head], delimiter=_separator(head)), [])
        if reading.text_field not in columns:
            yield UnfitDocument(0, "no text field")
            return
        for number, row in enumerate(csv.reader(text, delimiter=_separator(head))):
            value_of = functools.partial(_value, dict(zip(columns, row, strict=False)))
            yield limits.document(number, value_of(reading.text_field), limit, about=about(reading, value_of))
    except DamagedFile as damage:
        yield UnfitDocument(number + 1, damage.args[0])
    except UnicodeDecodeError:
        yield UnfitDocument(number + 1, "not UTF-8")
    except csv.Error as error:
        too_long = "field larger than field limit" in str(error)
        yield UnfitDocument(number + 1, "longer than the limit" if too_long else "malformed table")


def _value(row: Mapping[str, str], column: str) -> str | None:
    return row.get(column)


def _separator(head: str) -> str:
    return "\t" if "\t" in head else ","
