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
"""Bytes decompressed at once, and the most that are lost before damage, as Arrow gives whole chunks only."""


class DamagedFile(Exception):
    """The compressed bytes end too early, or do not have this compression; `args[0]` is the reason."""


def decompressed(stream: BinaryIO, codec: str) -> BinaryIO:
    """The decompressed stream, with all its members or frames one after the other; reading it raises DamagedFile."""
    return cast(BinaryIO, io.BufferedReader(_Xz(stream) if codec == "xz" else _Decompressed(stream, codec)))


def codec_of(suffix: str, head: bytes) -> str | None:
    """The compression of a file by its first bytes, or by its suffix, so that a damaged file is known as one."""
    found = next((codec for magic, codec in MAGIC.items() if head.startswith(magic)), None)
    return found or CODECS.get(suffix)


class _Xz(io.RawIOBase):
    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._inner = lzma.LZMAFile(stream)  # noqa: SIM115 (lives as long as this stream)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        try:
            data = self._inner.read(min(len(buffer), CHUNK))
        except (lzma.LZMAError, EOFError) as error:
            raise DamagedFile("truncated" if isinstance(error, EOFError) else "malformed compression") from None
        buffer[: len(data)] = data
        return len(data)


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
            if not made_by_arrow(error):
                raise
            truncated = "Truncated" in str(error)
            raise DamagedFile("truncated" if truncated else "malformed compression") from None
        buffer[: len(data)] = data
        return len(data)


def made_by_arrow(error: OSError) -> bool:
    """Whether Arrow raised the error because of the file's content: such errors have no errno, system errors have
    one."""
    return type(error) is OSError and error.errno is None
