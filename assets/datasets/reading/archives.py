"""Archives: tar files, read as a stream, whose members are files with their own documents.

An archive that was appended to another one is read too. Python's `tarfile` silently ends at a header that it cannot
read, allocates memory for a name of any length in a header, and raises unrelated errors for some headers. Here each of
these counts as damage of the archive.
"""

import io
import tarfile
from collections.abc import Callable, Iterator
from typing import BinaryIO, Self, cast

from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.document import Text, UnfitDocument

BUFFER = 1 << 18
LONGEST_HEADER = 1 << 20
"""The most bytes of a name or of attributes before a member; a real path is shorter than 5,000."""
EXTENDED = (*(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK), *(tarfile.XHDTYPE, tarfile.XGLTYPE), b"X")
"""Types of headers with such names or attributes; the last type is that of Solaris."""


def read(
    stream: BinaryIO, read_member: Callable[[str, BinaryIO], Iterator[Text | UnfitDocument]]
) -> Iterator[Text | UnfitDocument]:
    """The documents of all members that are files, numbered consecutively. Everything after damage is lost."""
    number = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member, ignore_zeros=True) as archive:
            for member in archive:
                archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep them all in memory
                data = archive.extractfile(member) if member.isfile() and member.size else None
                if data is None:
                    continue
                for document in read_member(
                    member.name, cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, data), BUFFER))
                ):
                    yield document._replace(number=number)
                    number += 1
    except DamagedFile as damage:
        yield UnfitDocument(number, damage.args[0])
    except tarfile.ReadError:
        yield UnfitDocument(number, "truncated")
    except (tarfile.TarError, ValueError, RecursionError):
        yield UnfitDocument(number, "malformed archive")


class _Member(tarfile.TarInfo):
    """A member for which a damaged header is an error, and not the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        """The next member. Raises EOFHeaderError at a block of zeros, which ends an archive, EmptyHeaderError behind
        it, ReadError for an archive without its end, and TarError for damage."""
        ended, vars(archive)["ended"] = vars(archive).get("ended", False), False
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            vars(archive)["ended"] = True
            raise
        except tarfile.EmptyHeaderError:  # type: ignore[attr-defined]
            if ended:
                raise
            raise tarfile.ReadError("no end") from None
        except tarfile.TruncatedHeaderError:  # type: ignore[attr-defined]
            raise tarfile.ReadError("a part of a header") from None
        except tarfile.HeaderError as error:
            raise tarfile.TarError(str(error)) from None

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in EXTENDED and not 0 <= self.size <= LONGEST_HEADER:
            raise tarfile.TarError(f"{self.size} bytes of a header")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member
