"""Origins: where a staging may fetch files from, one interface for a folder, an object store and a peer node.

Only shards and manifests can be asked for, by the names they have in a durable tier, so no name leads anywhere
else. What an origin gives is not trusted: whoever reads compares hashes and tries the next origin.
"""

import io
import re
from pathlib import Path
from typing import BinaryIO, Protocol, cast

NAME = re.compile(r"shards/[0-9a-f]{64}\.shard|snapshots/[0-9a-f]{64}\.json")
"""The names that exist, relative to an origin."""


class Missing(Exception):
    """The origin was asked and has no such file."""


class Unreachable(Exception):
    """The origin could not be asked, or broke off; another origin may do."""


class Away(Unreachable):
    """Unreachable in a way that often passes: nobody answers, a server is overloaded, a connection broke."""


class Origin(Protocol):
    """Where files can be read from. `str()` of it is what a person recognises it by, without credentials."""

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        """A stream of the file's bytes from `offset` on, for reading once; its reads raise Unreachable.

        Raises Missing and Unreachable, with a message that names the file and what is wrong, and ValueError
        for a name that is neither a shard's nor a manifest's. What often passes was asked again for
        `patience.SECONDS` by then.
        """


def checked(name: str) -> str:
    """The name, if it is one that exists. Raises ValueError otherwise."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r}: expected shards/<64 hex digits>.shard or snapshots/<64 hex digits>.json")
    return name


class Folder:
    """A folder of a file system: the durable tier on CephFS, Lustre or NFS, or another node's disk mounted here."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        path = self._path / checked(name)
        try:
            stream = _File(path)
            if offset:
                stream.seek(offset)
        except FileNotFoundError:
            raise Missing(f"{path}: missing") from None
        except OSError as error:
            raise Unreachable(f"{path}: {error.strerror}") from error
        return cast(BinaryIO, stream)


class _File(io.FileIO):
    """A file whose failed reads say which file it was."""

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise Unreachable(f"{self.name}: {error.strerror}") from error


def origin(where: str | Path) -> Origin:
    """The origin that a path or URL names; nothing is asked yet. Raises ValueError for a scheme that is not known."""
    scheme, separator, _ = str(where).partition("://")
    if not separator:
        return Folder(Path(where))
    if scheme == "s3":
        from trainer.objects import ObjectStore

        return ObjectStore(str(where))
    if scheme in ("http", "https"):
        from trainer.peer import Peer

        return Peer(str(where))
    raise ValueError(f"{scheme}://…: expected a folder, s3://bucket/prefix, or http(s)://node:port of a peer")
