"""Compressed files, decompressed as a stream by Arrow, whose buffers are bounded and which detects a truncated end."""

import io
from typing import BinaryIO, cast

import pyarrow as pa

CODECS = {".gz": "gzip", ".zst": "zstd"}
"""Arrow's name of a compression by the suffix of the file."""
CHUNK = 4096
"""Bytes decompressed at once, and the most that are lost before damage, as Arrow gives whole chunks only."""


class DamagedFile(Exception):
    """The compressed bytes end too early, or do not have this compression; `args[0]` is the reason."""


def decompressed(stream: BinaryIO, codec: str) -> BinaryIO:
    """The decompressed stream, with all its members or frames one after the other; reading it raises DamagedFile."""
    return cast(BinaryIO, io.BufferedReader(_Decompressed(stream, codec)))


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
