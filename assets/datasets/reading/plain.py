"""A file that is one document: text, Markdown, source code."""

from collections.abc import Iterator
from typing import BinaryIO

from assets.datasets.reading import limits
from assets.datasets.reading.compression import Damaged
from assets.datasets.reading.items import Text, Unfit
from recipes.dataset import Reading


def read(stream: BinaryIO, reading: Reading) -> Iterator[Text | Unfit]:
    """The one document of the file; a damaged one gives none, as nobody could tell what of it is missing."""
    limit = limits.text_bytes(reading)
    try:
        data = stream.read(limit + 1)
    except Damaged as damage:
        yield Unfit(0, damage.args[0])
        return
    yield limits.document(0, data, limit)
