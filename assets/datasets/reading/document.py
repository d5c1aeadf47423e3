"""A document as a reader gives it: its text with what its file says of it, or the reason why there is no text.

URL, licence and date decide filters, which of several near-duplicates is the newest, and which documents a takedown by
URL means. How long a text may be, and whether a value is a text, is the same for every format.
"""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Literal, NamedTuple

from slipway.assets.datasets.reading.encodings import decoded
from slipway.recipes.dataset import ReadingSection

LONGEST_VALUE = 4096
"""Characters of the longest value that is kept; a longer one is no URL, licence or date."""

Reason = Literal[
    "a binary file",
    "a picture, a font or a sound",
    "a row longer than the limit",
    "a TFRecord file",
    "a zip archive under another name",
    "an HDF5 file",
    "an archive of another format",
    "an element longer than the limit",
    "changed while it was read",
    "damaged image",
    "empty",
    "encrypted",
    "gone since it was listed",
    "longer than the limit",
    "malformed JSON",
    "malformed Parquet",
    "malformed archive",
    "malformed array",
    "malformed compression",
    "malformed table",
    "larger than the limit",
    "no image",
    "no label",
    "no permission to read it",
    "no text field",
    "not an image",
    "not UTF-8",
    "of another size",
    "packed inside an archive",
    "truncated",
]
NO_TEXT: frozenset[Reason] = frozenset({"a picture, a font or a sound"})
"""What lies beside the texts of a site or a manual: nothing is wrong with such a file, and no text is lost."""
LOSES_THE_REST: frozenset[Reason] = frozenset(
    {
        "a row longer than the limit",
        "an element longer than the limit",
        "malformed Parquet",
        "malformed archive",
        "malformed array",
        "malformed compression",
        "malformed table",
        "truncated",
    }
)
"""Damage behind which nothing in the file is read: how many documents are lost is not known."""
REMEDIES: Mapping[str, str] = {
    "a TFRecord file": "convert it to Parquet",
    "an HDF5 file": "convert it to Parquet",
    "a binary file": "exclude it",
    "a zip archive under another name": "name it .zip, or exclude it",
    "an archive of another format": "unpack it",
    "encrypted": "unpack it",
    "gone since it was listed": "build again",
    "changed while it was read": "build again when no process writes there",
    "no permission to read it": "let the build's user read it, or exclude it",
    "a row longer than the limit": "raise reading.longest_megabytes, or look for a quotation mark without its end",
    "an element longer than the limit": "raise reading.longest_megabytes, or exclude it",
    "malformed table": "look for a quotation mark without its end",
    "truncated": "copy it anew, or exclude it",
    "longer than the limit": "raise reading.longest_megabytes, or exclude it",
    "no text field": "name the field or column that has the text in reading.text_field",
    "not UTF-8": "name its encoding in reading.encoding",
    "packed inside an archive": "unpack it",
}
"""What a person can do about a file, by the reason why it is not read."""


class About(NamedTuple):
    """Each is empty where it is not named."""

    url: str = ""
    licence: str = ""
    date: str = ""


NOTHING = About()


def about(reading: ReadingSection, value_of: Callable[[str], object]) -> About:
    """What the fields of `reading.metadata` say of a document; `value_of` gives the value of a field, or None."""
    named = reading.metadata
    fields = (named.url, named.licence, named.date)
    return About(*(_as_text(value_of(field)) if field else "" for field in fields)) if any(fields) else NOTHING


def member(value: Any, field: str) -> Any:
    """The value of a field of a JSON object, in which dots lead into objects; None where there is none."""
    for name in field.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _as_text(value: object) -> str:
    """A value as text: a list, such as all licences of a repository, with commas between its elements."""
    if isinstance(value, list):
        text = ", ".join(filter(None, map(_as_text, value)))
    elif isinstance(value, date):
        text = value.isoformat()
    else:
        text = str(value).strip() if isinstance(value, str | int) else ""
    return text.encode(errors="replace").decode() if len(text) <= LONGEST_VALUE else ""


class Text(NamedTuple):
    """A document: its number in its file (line or row, from 0), and its text, which UTF-8 can encode and is not
    empty."""

    number: int
    text: str
    about: About = NOTHING
    text_of_file: str | None = None
    """Of a part of a plain file, the text of the file if it is not longer than a document may be: a takedown that
    meant the file as one document means its parts too."""


class UnfitDocument(NamedTuple):
    """A place in a file where no document could be read. Everything after truncation or damage in a file is lost."""

    number: int
    reason: Reason


def longest_text(reading: ReadingSection) -> int:
    """The length of the longest text in bytes of UTF-8."""
    return int(reading.longest_megabytes * 1e6)


def longest_whole_file(reading: ReadingSection) -> int:
    """The length of the longest plain file that is one document, in bytes."""
    return min(longest_text(reading), int((reading.whole_megabytes or reading.longest_megabytes) * 1e6))


def document_of(
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
