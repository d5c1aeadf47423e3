"""Formats: detects the format of a file by its first bytes, or, if these do not show it, by the suffix of its name.

A name alone is not enough: a `.json` may be one document of source code or an array of a million texts, and an archive
that is read as text becomes one document of garbage.
"""

import io
import json
import struct
from dataclasses import dataclass
from typing import BinaryIO, Literal, cast

from slipway.assets.datasets.reading import encodings
from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.document import Reason

Format = Literal["text", "lines", "array", "object", "csv", "html", "warc", "tar"]
HEAD = 1 << 16
"""The number of bytes for detection, enough for the first element of most arrays."""
BY_SUFFIX: dict[str, Format] = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".csv": "csv",
    ".tsv": "csv",
    ".htm": "html",
    ".html": "html",
    ".xhtml": "html",
    ".warc": "warc",
    ".wet": "warc",
}
USTAR = b"ustar"
USTAR_AT = 257
"""The offset of the magic `USTAR` in the header of an archive's first member (POSIX 1003.1, pax)."""
UNREAD: dict[bytes, Reason] = {
    b"PK\x03\x04": "a zip archive under another name",
    b"7z\xbc\xaf\x27\x1c": "an archive of another format",
    b"Rar!": "an archive of another format",
    b"%PDF-": "a binary file",
    b"\x7fELF": "a binary file",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"SQLite format 3": "a binary file",
    b"PAR1": "a binary file",
}
"""Formats without a reader, by their first bytes."""
MEDIA = (
    *(b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"\0\0\1\0\1", b"II*\0", b"MM\0*"),  # pictures
    *(b"wOFF", b"wOF2", b"\0\1\0\0\0", b"OTTO\0"),  # fonts
    *(b"OggS", b"ID3", b"fLaC", b"\x1aE\xdf\xa3"),  # sounds and films
)
"""The first bytes of pictures, fonts and sounds."""
DRAWINGS = (".svg", ".svgz")
"""Suffixes of drawings and fonts in SVG: text to a computer, coordinates to a reader."""


@dataclass(frozen=True)
class HeadedFile:
    """A file with its head."""

    head: bytes
    stream: BinaryIO
    """The whole file, from its beginning."""


@dataclass(frozen=True)
class Unread:
    """A file in a format without a reader."""

    reason: Reason


def opened(stream: BinaryIO) -> HeadedFile:
    """Read the head of a stream. Raises the stream's errors; damage after the beginning is raised when it is
    reached."""
    head = b""
    rest = cast(io.BufferedReader, stream)
    damage: DamagedFile | None = None
    try:
        while len(head) < HEAD and (more := rest.read1(HEAD - len(head))):
            head += more
    except DamagedFile as error:
        if not head:
            raise
        damage = error
    return HeadedFile(head, cast(BinaryIO, io.BufferedReader(_Rejoined(head, rest, damage), HEAD)))


def format_of(suffix: str, head: bytes, text_field: str) -> Format | Unread:
    """The format of a file, if a reader reads it. `suffix` is that of its name in small letters."""
    if head[USTAR_AT : USTAR_AT + len(USTAR)] == USTAR:
        return "tar"
    if head.startswith(b"WARC/"):
        return "warc"
    unread = next((reason for magic, reason in UNREAD.items() if head.startswith(magic)), None)
    drawn = suffix in DRAWINGS and b"<svg" in head
    if drawn or head.startswith(MEDIA) or (head.startswith(b"RIFF") and head[8:12] in (b"WEBP", b"WAVE", b"AVI ")):
        return Unread("a picture, a font or a sound")
    if unread or _is_tfrecord(head):
        return Unread(unread or "a TFRecord file")
    if suffix == ".json":
        return _format_of_json(head, text_field)
    if suffix in ("", ".txt") and head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "html"
    return BY_SUFFIX.get(suffix, "text")


def _is_tfrecord(head: bytes) -> bool:
    """Whether a file begins with the length of a record and the masked checksum of that (tensorflow/core/lib/io)."""
    if len(head) < 12:
        return False
    length, checksum = struct.unpack_from("<QI", head)
    if length > 1 << 40:  # this excludes nearly all texts without computing a checksum
        return False
    crc = _crc32c(head[:8])
    return bool(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF == checksum)


def _crc32c(data: bytes) -> int:
    """The Castagnoli checksum (RFC 3720, B.4), bit by bit, for a few bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _format_of_json(head: bytes, text_field: str) -> Format:
    """Lines, an array of objects with a text, one such object, or program data that happens to be JSON."""
    text = head.decode(encodings.marked(head) or "utf-8-sig", "replace").lstrip()
    if text.startswith("["):
        if _has_text(text[1:].lstrip(), text_field):
            return "array"
        return "text"
    first, newline, rest = text.partition("\n")
    if newline and rest.lstrip().startswith("{") and _has_text(first, text_field):
        return "lines"
    return "object" if _has_text(text, text_field) else "text"


def _has_text(text: str, text_field: str) -> bool:
    """Whether a text begins with an object that has the field, as far as it can be seen."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return text.startswith("{") and f'"{text_field.split(".")[0]}"' in text
    for field in text_field.split("."):
        value = value.get(field) if isinstance(value, dict) else None
    return isinstance(value, str)


class _Rejoined(io.RawIOBase):
    """A stream that starts with its head, which was already read, and ends at damage."""

    def __init__(self, head: bytes, rest: io.BufferedReader, damage: DamagedFile | None) -> None:
        super().__init__()
        self._head = io.BytesIO(head)
        self._rest = rest
        self._damage = damage

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        data = self._head.read(len(buffer))
        if not data and self._damage is not None:
            raise self._damage
        data = data or self._rest.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)
