"""Normalisation: one way to write the same text, so that equal texts have equal bytes."""

import functools
import re
import unicodedata

_CONTROLS = bytes({*range(0x20), 0x7F} - set(b"\t\n"))
BEHIND_MARKS = 0x20000
"""Of this code point and those behind it, ideographs and tags, none is a mark."""
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
    if len(without_controls := data.translate(None, _CONTROLS)) < len(data):
        text = without_controls.decode()
    return text if text.isascii() else _composed(_NON_ASCII_CONTROLS.sub("", text))


def _composed(text: str) -> str:
    """The text in NFC, in a time that grows with its length alone.

    Unicode's order of the marks on a letter is found by Python in a time that grows with the square of their number:
    half a megabyte of marks on one letter would take hours. Long runs are put in order beforehand, which changes
    nothing of the result.
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
    """What a character begins with when it is decomposed."""
    return unicodedata.normalize("NFD", character)[0]
