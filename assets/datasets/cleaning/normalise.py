"""Normalisation: one way to write the same text, so that equal texts have equal bytes."""

import re
import unicodedata

_UNWANTED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters (Unicode category Cc) but tab and newline."""


def normalise(text: str) -> str:
    """Unicode NFC, lines that end in a newline alone, and no control characters but tab and newline.

    Idempotent. Most texts are ASCII and hold nothing to change: these are returned as they are.
    """
    if not text.isascii() and not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    if text.isascii() and text.isprintable():
        return text
    return _UNWANTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
