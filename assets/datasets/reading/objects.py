"""JSON files of one object: the object is a document with the text in a field, as a file of JSON lines has many.

A file that is no such object after all, such as program data, is one document as it lies there.
"""

from collections.abc import Iterator
from typing import BinaryIO

from slipway.assets.datasets.reading import limits, plain
from slipway.assets.datasets.reading.about import about, member
from slipway.assets.datasets.reading.items import Text, UnfitDocument
from slipway.recipes.dataset import ReadingSection
from slipway.trainer.base import parsing


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The one document of the file; the limit is that of the file, what stands beside the text included."""

    def document(number: int, data: bytes, limit: int) -> Text | UnfitDocument:
        try:
            value = parsing.value(data.decode("utf-8-sig") if len(data) <= limit else "")
        except ValueError:
            value = None
        text = member(value, reading.text_field)
        if not isinstance(text, str):
            return limits.document(number, data, limit, reading.encoding, detect=True)
        return limits.document(number, text, limit, about=about(reading, lambda field: member(value, field)))

    return plain.whole(stream, reading, document)
