"""Items of a reader: the text of a document, or the reason why there is none."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from slipway.assets.datasets.reading.about import NOTHING, About

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
ADVICE: Mapping[str, str] = {
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


class Text(NamedTuple):
    """A document: its number in its file (line or row, from 0), and its text, which UTF-8 can encode and is not
    empty."""

    number: int
    text: str
    about: About = NOTHING
    whole: str | None = None
    """Of a part of a plain file, the text of the file if it is not longer than a document may be: a takedown that
    meant the file as one document means its parts too."""


class UnfitDocument(NamedTuple):
    """A place in a file where no document could be read. Everything after truncation or damage in a file is lost."""

    number: int
    reason: Reason
