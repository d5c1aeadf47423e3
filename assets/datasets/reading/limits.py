"""The limits of a text: how long it may be and whether a value is a text, the same for every format."""

from assets.datasets.reading.items import Text, UnfitDocument
from recipes.dataset import ReadingSection


def text_bytes(reading: ReadingSection) -> int:
    """The length of the longest text in bytes of UTF-8."""
    return int(reading.longest_megabytes * 1e6)


def document(number: int, value: object, limit: int) -> Text | UnfitDocument:
    """The document of a value that was found in a file: a text, its UTF-8, or a value that is no text."""
    if not isinstance(value, str | bytes):
        return UnfitDocument(number, "no text field")
    if not value:
        return UnfitDocument(number, "empty")
    try:
        data = value.encode() if isinstance(value, str) else value
        text = data.decode("utf-8-sig") if len(data) <= limit else ""
    except UnicodeError:
        return UnfitDocument(number, "not UTF-8")
    if len(data) > limit:
        return UnfitDocument(number, "longer than the limit")
    return Text(number, text) if text else UnfitDocument(number, "empty")
