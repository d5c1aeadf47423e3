"""Plain files: each file is one document, such as text, Markdown or source code."""

from collections.abc import Callable, Iterator
from typing import BinaryIO

from assets.datasets.reading import limits
from assets.datasets.reading.compression import DamagedFile
from assets.datasets.reading.items import Text, UnfitDocument
from recipes.dataset import ReadingSection


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The one document of the file; a damaged file gives none, because its missing part is not known."""

    def document(number: int, data: bytes, limit: int) -> Text | UnfitDocument:
        return limits.document(number, data, limit, reading.encoding, detect=True)

    return whole(stream, reading, document)


def whole(
    stream: BinaryIO, reading: ReadingSection, document: Callable[[int, bytes, int], Text | UnfitDocument]
) -> Iterator[Text | UnfitDocument]:
    """What `document` makes of all bytes of a file, up to one more than the limit."""
    limit = limits.text_bytes(reading)
    try:
        data = stream.read(limit + 1)
    except DamagedFile as damage:
        yield UnfitDocument(0, damage.args[0])
        return
    yield document(0, data, limit)
