"""Encodings: decodes files that are not UTF-8, by their byte order mark or by detection.

Files from before Unicode do not name their encoding. uchardet, a part of resiliparse, detects it by the frequencies of
pairs of letters in a language. It is used only for bytes that are not UTF-8, and reads PROBED bytes of them.
"""

import codecs
import io
from functools import lru_cache
from importlib import metadata
from typing import BinaryIO, cast

VERSION = metadata.version("resiliparse")
"""The version of the detection, which affects results."""
PROBED = 1 << 16
"""The number of bytes for detection, around the first ones that are not UTF-8."""
FEWEST = 64
"""The fewest bytes for detection, because one or two words fit too many encodings."""
CONTROLS = bytes(sorted({*range(32), 127} - {*b"\t\n\v\f\r\x1b"}))
"""Bytes that no text in a legacy encoding contains; the escape character is part of ISO 2022."""
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's, with which it begins
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
MOST_NULS = 0.1
"""The share of zero bytes from which data is not text, even if it decodes as UTF-8."""
WIDE = 0.5
"""The share of zero bytes at only the even or only the odd positions from which data is UTF-16 without a mark."""


def decoded(data: bytes, otherwise: str | None = None, detect: bool = False) -> str:
    """The text of bytes: UTF-8, UTF-16 or UTF-32 with its mark, or else the encoding `otherwise`.

    Without `otherwise` the encoding is detected from the bytes, if `detect` says so; so is UTF-16 without a mark. A
    byte order mark is no part of the text. Raises UnicodeError when the bytes are not in that encoding, or none can be
    detected.
    """
    encoding = marked(data)
    if encoding:
        return data.decode(encoding)
    wide = without_mark(data) if detect else None
    if wide:
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
    """The encoding of the byte order mark at the beginning, unless it is UTF-8."""
    return next((encoding for mark, encoding in MARKS if data.startswith(mark)), None)


def as_utf8(stream: BinaryIO, encoding: str) -> BinaryIO:
    """Convert a stream from another encoding to UTF-8. Bytes that are not text stay invalid."""
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
    """Python's name of the encoding of bytes that are not UTF-8; None for bytes that do not look like text."""
    # Imported here, because every Dagster process loads this module and few of them read such files.
    from resiliparse.parse.encoding import detect_encoding

    if len(data) < FEWEST or data.translate(None, CONTROLS) != data:
        return None
    # Names have their meaning for browsers: ISO 8859-1 is Windows' superset of it.
    encoding = detect_encoding(data, max_len=len(data), html5_compatible=True, from_html_meta=False)
    if encoding in (None, "utf-8") or not _is_known(str(encoding)):
        return None
    return str(encoding)


def _is_known(encoding: str) -> bool:
    try:
        codecs.lookup(encoding)
    except LookupError:
        return False
    return True


class _Transcoded(io.RawIOBase):
    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        super().__init__()
        self._stream = stream
        self._pending = b""
        self._damaged = False
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
                self._pending = b"\xff"
                self._damaged = True  # the stream ends here
        count = min(len(buffer), len(self._pending))
        buffer[:count], self._pending = self._pending[:count], self._pending[count:]
        return count
