"""Compressed files, decompressed as a stream by Arrow, which bounds its buffers and knows a truncated end."""

import io
from typing import BinaryIO, cast

import pyarrow as pa

CODECS = {".gz": "gzip", ".zst": "zstd"}
"""Arrow's name of a compression by the suffix of the file."""
CHUNK = 4096
"""Bytes decompressed at a time: what may be lost before damage, as Arrow gives a chunk whole or not at all."""


class Damaged(Exception):
    """The compressed bytes end too early, or are none of this compression; `args[0]` is the reason."""


def decompressed(stream: BinaryIO, codec: str) -> BinaryIO:
    """What the stream holds inside, several members or frames one after the other; its reads raise Damaged."""
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
            raise Damaged("truncated" if truncated else "malformed compression") from None
        buffer[: len(data)] = data
        return len(data)


def made_by_arrow(error: OSError) -> bool:
    """Whether Arrow raised this of what it read: it uses bare OSErrors, which those of the system never are."""
    return type(error) is OSError and error.errno is None
