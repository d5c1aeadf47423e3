"""Items of a reader: the text of a document, or the reason why there is none."""

from typing import Literal, NamedTuple

Reason = Literal[
    "damaged image",
    "empty",
    "longer than the limit",
    "malformed JSON",
    "malformed Parquet",
    "malformed compression",
    "larger than the limit",
    "no image",
    "no label",
    "no text field",
    "not an image",
    "not UTF-8",
    "of another size",
    "truncated",
]


class Text(NamedTuple):
    """A document: its number in its file (line or row, from 0), and its text, which UTF-8 can encode and is not
    empty."""

    number: int
    text: str


class UnfitDocument(NamedTuple):
    """A place in a file where no document could be read. Everything after truncation or damage in a file is lost."""

    number: int
    reason: Reason
