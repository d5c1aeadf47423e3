"""Normalisation: gives a text a canonical form, so that equal texts have equal bytes."""

import functools
import re
import unicodedata

_CONTROLS = bytes({*range(0x20), 0x7F} - set(b"\t\n"))
BEHIND_MARKS = 0x20000
"""From this code point on there are only ideographs and tags, and no marks."""
_NON_ASCII_CONTROLS = re.compile("[\x80-\x9f]")


def normalize(text: str) -> str:
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
    without_controls = data.translate(None, _CONTROLS)
    if len(without_controls) < len(data):
        text = without_controls.decode()
    if text.isascii():
        return text
    return _composed(_NON_ASCII_CONTROLS.sub("", text))


def _composed(text: str) -> str:
    """The text in NFC, in time linear in its length.

    Python sorts the marks on a letter in time quadratic in their number, so half a megabyte of marks on one letter
    would take hours. Sorting long runs beforehand avoids this without changing the result.
    """
    if unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", _long_runs().sub(lambda run: _in_order(run[0]), text))


def _in_order(marks: str) -> str:
    """Marks in Unicode's canonical order (Unicode 15.0, 3.11, D108 and D109), decomposed."""
    return "".join(sorted("".join(unicodedata.normalize("NFD", mark) for mark in marks), key=unicodedata.combining))


@functools.cache
def _long_runs() -> re.Pattern[str]:
    """More marks on one letter than any language has; of UAX 15, 13, 'Stream-Safe Text Format'."""
    marks = (chr(code) for code in range(0x300, BEHIND_MARKS) if unicodedata.combining(_first(chr(code))))
    return re.compile(f"[{''.join(map(re.escape, marks))}]{{31,}}")


def _first(character: str) -> str:
    """The first character of a decomposed character."""
    return unicodedata.normalize("NFD", character)[0]
