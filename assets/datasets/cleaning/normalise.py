"""Normalisation: one way to write the same text, so that equal texts have equal bytes."""

import re
import unicodedata

_CONTROLS = bytes({*range(0x20), 0x7F} - set(b"\t\n"))
_NON_ASCII_CONTROLS = re.compile("[\x80-\x9f]")


def normalise(text: str) -> str:
    """The text with plain newlines, without control characters except tab and newline, and in Unicode NFC.

    Control characters are those of the Unicode category Cc. Half surrogate pairs, which are possible in
    JSON and not in UTF-8, become U+FFFD. Idempotent; a text that needs no change is returned unchanged.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        data = text.encode()
    if len(kept := data.translate(None, _CONTROLS)) < len(data):
        text = kept.decode()
    return text if text.isascii() else unicodedata.normalize("NFC", _NON_ASCII_CONTROLS.sub("", text))
