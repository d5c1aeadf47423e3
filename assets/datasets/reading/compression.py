"""Compressed files, decompressed as a stream, whose buffers are bounded and which detects a truncated end.

Arrow decompresses all but xz, which is Python's.
"""

import io
import lzma
from typing import BinaryIO, cast

import pyarrow as pa

CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
"""The name of a compression, which is Arrow's, by the suffix of the file."""
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
"""The name of a compression by the first bytes of the file."""
CHUNK = 4096
"""Bytes to decompress together. At most this much is lost before damage, because Arrow returns only whole chunks."""


class DamagedFile(Exception):
    """The compressed bytes end too early, or do not have this compression; `args[0]` is the reason."""


def decompressed(stream: BinaryIO, codec: str) -> BinaryIO:
    """The decompressed stream of all members or frames; reading it raises DamagedFile."""
    return cast(BinaryIO, io.BufferedReader(_Xz(stream) if codec == "xz" else _Decompressed(stream, codec)))


def codec_of(suffix: str, head: bytes) -> str | None:
    """The compression of a file by its first bytes, or by its suffix, so that a damaged file is recognised."""
    codec = next((codec for magic, codec in MAGIC.items() if head.startswith(magic)), None)
    return codec or CODECS.get(suffix)


class _Xz(io.RawIOBase):
    """All streams of a file in sequence. Python's `LZMAFile` silently ignores unreadable data after the first stream,
    so a damaged second half would be lost."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self._decompressor = lzma.LZMADecompressor()
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        data = b""
        try:
            while not data and self._goes_on():
                data = self._decompressor.decompress(self._waiting, min(len(buffer), CHUNK))
                self._waiting = self._decompressor.unused_data if self._decompressor.eof else b""
        except lzma.LZMAError:
            raise DamagedFile("malformed compression") from None
        buffer[: len(data)] = data
        return len(data)

    def _goes_on(self) -> bool:
        """Whether this stream or the next one has more to decompress; zero bytes may be between them."""
        ended = self._decompressor.eof
        if ended:
            self._waiting = self._waiting.lstrip(b"\0")
        while not self._waiting and (ended or self._decompressor.needs_input):
            chunk = self._stream.read(CHUNK)
            if not chunk:
                if not ended:
                    raise DamagedFile("truncated")
                return False
            self._waiting = chunk.lstrip(b"\0") if ended else chunk
        if ended:
            self._decompressor = lzma.LZMADecompressor()
        return True


class _Decompressed(io.RawIOBase):
    def __init__(self, stream: BinaryIO, codec: str) -> None:
        super().__init__()
        self._inner = pa.CompressedInputStream(pa.PythonFile(stream, "r"), codec)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        try:
            data = self._inner.read(min(len(buffer), CHUNK))
        except OSError as error:
            if not made_by_content(error):
                raise
            truncated = "Truncated" in str(error)
            raise DamagedFile("truncated" if truncated else "malformed compression") from None
        buffer[: len(data)] = data
        return len(data)


def made_by_content(error: OSError) -> bool:
    """Whether Arrow, or a decompressor of Python, raised the error because of the file's content: such errors have no
    errno, system errors have one."""
    return type(error) is OSError and error.errno is None
