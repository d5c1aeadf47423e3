"""What a reader gives: a document's text, or why there is none."""

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
    """A document: its place in its file (line, row; from 0), and its text, encodable in UTF-8 and not empty."""

    number: int
    text: str


class Unfit(NamedTuple):
    """A place in a file where no document could be read. What follows "truncated" or damage in a file is lost."""

    number: int
    reason: Reason
