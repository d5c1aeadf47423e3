"""The limits of a text: how long it may be and whether a value is a text, the same for every format."""

from slipway.assets.datasets.reading.about import NOTHING, About
from slipway.assets.datasets.reading.encodings import decoded
from slipway.assets.datasets.reading.items import Text, UnfitDocument
from slipway.recipes.dataset import ReadingSection


def text_bytes(reading: ReadingSection) -> int:
    """The length of the longest text in bytes of UTF-8."""
    return int(reading.longest_megabytes * 1e6)


def whole_bytes(reading: ReadingSection) -> int:
    """The length of the longest plain file that is one document, in bytes."""
    return min(text_bytes(reading), int((reading.whole_megabytes or reading.longest_megabytes) * 1e6))


def document(
    number: int,
    value: object,
    limit: int,
    encoding: str | None = None,
    detect: bool = False,
    about: About = NOTHING,
) -> Text | UnfitDocument:
    """The document of a value that was found in a file: a text, its bytes, or a value that is no text.

    Bytes that are not UTF-8, also those that a text holds as surrogates (PEP 383), are in `encoding`, or in one that
    they show, as `encodings.decoded` says; `detect` is for whole files.
    """
    if not isinstance(value, str | bytes):
        return UnfitDocument(number, "no text field")
    if not value:
        return UnfitDocument(number, "empty")
    try:
        data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        text = decoded(data, encoding, detect) if len(data) <= limit else ""
    except UnicodeError:
        return UnfitDocument(number, "a binary file" if detect and b"\0" in data else "not UTF-8")
    if len(data) > limit:
        return UnfitDocument(number, "longer than the limit")
    return Text(number, text, about) if text else UnfitDocument(number, "empty")
