"""Origins: where a staging may fetch files from, one interface for a folder, an object store and a peer node.

A name is relative to the origin and never leaves it. What an origin gives is not trusted: whoever reads
compares hashes and tries the next origin.
"""

import io
from pathlib import Path
from typing import BinaryIO, Protocol


class Missing(Exception):
    """The origin was asked and has no such file."""


class Unreachable(Exception):
    """The origin could not be asked, or broke off; another origin or a later attempt may do."""


class Origin(Protocol):
    """Where files can be read from. `str()` of it is what a person recognises it by, without credentials."""

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        """A stream of the file's bytes from `offset` on, for reading once; its reads raise Unreachable.

        Raises Missing and Unreachable, with a message that names the file and what is wrong.
        """


class Folder:
    """A folder of a file system: the durable tier on CephFS, Lustre or NFS, or another node's disk mounted here."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        try:
            stream = io.FileIO(self._path / name)
            if offset:
                stream.seek(offset)
        except FileNotFoundError:
            raise Missing(f"{self._path / name}: missing") from None
        except OSError as error:
            raise Unreachable(f"{self._path / name}: {error.strerror}") from error
        return stream


def origin(where: str | Path) -> Origin:
    """The origin that a path or URL names. Raises ValueError for a scheme that is not known."""
    if "://" in str(where):
        raise ValueError(f"{where}: expected a folder")
    return Folder(Path(where))
