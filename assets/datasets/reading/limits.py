"""How long a text may be, and whether it can be one: the same for every format."""

from assets.datasets.reading.items import Text, Unfit
from recipes.dataset import Reading


def text_bytes(reading: Reading) -> int:
    """The length of the longest text in bytes of UTF-8."""
    return int(reading.longest_megabytes * 1e6)


def document(number: int, value: object, limit: int) -> Text | Unfit:
    """The document that a value found in a file is: text, its UTF-8, or nothing that has a text."""
    if not isinstance(value, str | bytes):
        return Unfit(number, "no text field")
    if not value:
        return Unfit(number, "empty")
    try:
        data = value.encode() if isinstance(value, str) else value
        text = data.decode("utf-8-sig") if len(data) <= limit else ""
    except UnicodeError:
        return Unfit(number, "not UTF-8")
    if len(data) > limit:
        return Unfit(number, "longer than the limit")
    return Text(number, text) if text else Unfit(number, "empty")
