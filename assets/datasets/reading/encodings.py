"""Encodings: how the bytes of a file become text that is not in UTF-8: by their byte order mark, or by what they spell.

Files of before Unicode name no encoding. uchardet, which is part of resiliparse, detects it by how often letters follow
each other in a language. It is asked only for bytes that are not UTF-8, and reads PROBED bytes of them.
"""

import codecs
import io
from functools import lru_cache
from importlib import metadata
from typing import BinaryIO, cast

VERSION = metadata.version("resiliparse")
"""Another version may detect another encoding."""
PROBED = 1 << 16
"""Bytes by which an encoding is detected, around the first ones that are not UTF-8."""
FEWEST = 64
"""Bytes below which no encoding is detected: a word or two fit too many of them."""
CONTROLS = bytes(sorted({*range(32), 127} - {*b"\t\n\v\f\r\x1b"}))
"""Bytes that no text of a legacy encoding has; the escape is part of ISO 2022."""
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's, with which it begins
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
MOST_NULS = 0.1
"""The share of zero bytes with which bytes are no text in UTF-8, though they would decode."""
WIDE = 0.5
"""The share of zero bytes at the even or the odd places alone from which on bytes are UTF-16 without a mark."""


def decoded(data: bytes, otherwise: str | None = None, detect: bool = False) -> str:
    """The text of bytes: UTF-8, UTF-16 or UTF-32 with its mark, or else the encoding `otherwise`.

    Without `otherwise` the encoding is detected from the bytes, if `detect` says so; so is UTF-16 without a mark. A
    byte order mark is no part of the text. Raises UnicodeError when the bytes are not in that encoding, or none can be
    detected.
    """
    if encoding := marked(data):
        return data.decode(encoding)
    if detect and (wide := without_mark(data)):
        return data.decode(wide)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        begin = max(0, error.start - PROBED // 2)
        encoding = otherwise or (_detected(data[begin : begin + PROBED]) if detect else None)
        if encoding is None:
            raise
    return data.decode(encoding)


def marked(data: bytes) -> str | None:
    """The encoding that the byte order mark at the beginning names, unless that is UTF-8."""
    return next((encoding for mark, encoding in MARKS if data.startswith(mark)), None)


def as_utf8(stream: BinaryIO, encoding: str) -> BinaryIO:
    """A stream in another encoding as one in UTF-8. What is no text there is none here either."""
    return cast(BinaryIO, io.BufferedReader(_Transcoded(stream, encoding)))


def without_mark(data: bytes) -> str | None:
    """UTF-16, by the zero bytes beside the letters that ASCII has too; None for bytes of which few are zero.

    Raises UnicodeError for other bytes.
    """
    zeros = data.count(0)
    if zeros <= MOST_NULS * len(data):
        return None
    for high, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        there = data[high::2].count(0)
        if there * 2 > WIDE * len(data) and zeros - there < (1 - WIDE) * there:
            return encoding
    raise UnicodeError("zero bytes")


@lru_cache(maxsize=1)
def _detected(data: bytes) -> str | None:
    """The encoding of bytes that are not UTF-8, as Python names it; None for bytes that look like no text."""
    # Imported here, because every process of Dagster loads this module and few of them read such files.
    from resiliparse.parse.encoding import detect_encoding

    if len(data) < FEWEST or data.translate(None, CONTROLS) != data:
        return None
    # Names as browsers understand them: what calls itself ISO 8859-1 is Windows' superset of it.
    encoding = detect_encoding(data, max_len=len(data), html5_compatible=True, from_html_meta=False)
    return None if encoding in (None, "utf-8") or not _is_known(str(encoding)) else str(encoding)


def _is_known(encoding: str) -> bool:
    try:
        codecs.lookup(encoding)
    except LookupError:
        return False
    return True


class _Transcoded(io.RawIOBase):
    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        super().__init__()
        self._stream, self._pending, self._damaged = stream, b"", False
        self._decode = codecs.getincrementaldecoder(encoding)("surrogatepass").decode

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        chunk = b"-"
        while chunk and not self._pending and not self._damaged:
            chunk = self._stream.read(len(buffer))
            try:
                self._pending = self._decode(chunk, not chunk).encode("utf-8", "surrogatepass")
            except UnicodeDecodeError:
                self._pending, self._damaged = b"\xff", True  # nothing follows
        count = min(len(buffer), len(self._pending))
        buffer[:count], self._pending = self._pending[:count], self._pending[count:]
        return count
