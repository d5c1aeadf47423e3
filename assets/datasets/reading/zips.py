"""Zip archives, read by the index at their end, whose members are files with their own documents.

Damage affects single members, because the index leads to the next one. The index is in memory, half a kilobyte per
member.
"""

import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, BinaryIO, cast

from slipway.assets.datasets.reading.compression import DamagedFile, made_by_content
from slipway.assets.datasets.reading.document import Text, UnfitDocument

MAGIC = b"PK"
ENCRYPTED = 0x1
"""The flag of a member that needs a password (APPNOTE 4.4.4)."""
BUFFER = 1 << 18


def read(
    stream: BinaryIO, read_member: Callable[[str, BinaryIO], Iterator[Text | UnfitDocument]]
) -> Iterator[Text | UnfitDocument]:
    """The documents of all members that are files, numbered consecutively, in the order of the index.

    A truncated file has none, because its index was at the end. The stream can seek.
    """
    try:
        archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        stream.seek(0)
        yield UnfitDocument(0, "truncated" if stream.read(len(MAGIC)) == MAGIC else "malformed archive")
        return
    number = 0
    with archive:
        for member in archive.infolist():
            for document in _of(archive, member, read_member):
                yield document._replace(number=number)
                number += 1


def _of(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    read_member: Callable[[str, BinaryIO], Iterator[Text | UnfitDocument]],
) -> Iterator[Text | UnfitDocument]:
    """The documents of one member; empty for a folder or an empty file."""
    if member.is_dir() or not member.file_size:
        return
    if member.flag_bits & ENCRYPTED:
        yield UnfitDocument(0, "encrypted")
        return
    try:
        with archive.open(member) as data:
            yield from read_member(member.filename, cast(BinaryIO, io.BufferedReader(_Member(data), BUFFER)))
    except DamagedFile as damage:
        yield UnfitDocument(0, damage.args[0])
    except (zipfile.BadZipFile, NotImplementedError, ValueError):  # no header where the index says, or a rare codec
        yield UnfitDocument(0, "malformed archive")


class _Member(io.RawIOBase):
    """A member's content; reading it raises DamagedFile."""

    def __init__(self, inner: IO[bytes]) -> None:
        super().__init__()
        self._inner = inner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        try:
            data = self._inner.read(len(buffer))
        except EOFError:
            raise DamagedFile("truncated") from None
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, ValueError):
            raise DamagedFile("malformed compression") from None
        except OSError as error:  # of bzip2
            if not made_by_content(error):
                raise
            raise DamagedFile("malformed compression") from None
        buffer[: len(data)] = data
        return len(data)
