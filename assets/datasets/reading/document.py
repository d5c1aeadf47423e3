"""A document from a reader: its text and metadata, or the reason why it has no text.

URL, licence and date are used by filters, for the newest of several near-duplicates, and for takedowns by URL. The
limit on the length of a text and the test for text are the same for every format.
"""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Literal, NamedTuple

from slipway.assets.datasets.reading.encodings import decoded
from slipway.recipes.dataset import ReadingSection

LONGEST_VALUE = 4096
"""The most characters of a metadata value; longer values are not URLs, licences or dates, and are dropped."""

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
"""Reasons for files that accompany the texts of a site or a manual: they are not faulty, and no text is lost."""
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
"""Damage after which nothing in the file is read, so the number of lost documents is unknown."""
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
    "truncated": "copy it again, or exclude it",
    "longer than the limit": "raise reading.longest_megabytes, or exclude it",
    "no text field": "name the field or column that has the text in reading.text_field",
    "not UTF-8": "name its encoding in reading.encoding",
    "packed inside an archive": "unpack it",
}
"""The advice for a file that is not read, by reason."""


class About(NamedTuple):
    """A document's metadata; unknown fields are empty."""

    url: str = ""
    license: str = ""
    date: str = ""


NOTHING = About()


def about(reading: ReadingSection, value_of: Callable[[str], object]) -> About:
    """The metadata of a document, by the fields in `reading.metadata`; `value_of` returns a field's value or None."""
    named = reading.metadata
    fields = (named.url, named.license, named.date)
    if any(fields):
        return About(*(_as_text(value_of(field)) if field else "" for field in fields))
    return NOTHING


def member(value: Any, field: str) -> Any:
    """The value of a field of a JSON object, in which dots lead into objects; None if there is none."""
    for name in field.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _as_text(value: object) -> str:
    """A value as text; the elements of a list, such as all licences of a repository, are separated by commas."""
    if isinstance(value, list):
        text = ", ".join(filter(None, map(_as_text, value)))
    elif isinstance(value, date):
        text = value.isoformat()
    else:
        text = str(value).strip() if isinstance(value, str | int) else ""
    if len(text) <= LONGEST_VALUE:
        return text.encode(errors="replace").decode()
    return ""


class Text(NamedTuple):
    """A document: its number in its file (line or row, from 0), and its text, which UTF-8 can encode and is not
    empty."""

    number: int
    text: str
    about: About = NOTHING
    text_of_file: str | None = None
    """For a part of a plain file, the text of the whole file if it is within the limit for a document: a takedown of
    the file as one document also covers its parts."""


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
    """The document for a value in a file: a text, its bytes, or a value that is not a text.

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
    if text:
        return Text(number, text, about)
    return UnfitDocument(number, "empty")
