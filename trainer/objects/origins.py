"""Origins by their name: the folder, object store or peer that a path or URL names."""

import io
from pathlib import Path
from typing import BinaryIO, cast

from slipway.trainer.objects.origin import Missing, Origin, Unreachable, checked


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
    """A file whose failed reads name it."""

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise Unreachable(f"{self.name}: {error.strerror}") from error


def origin(where: str | Path) -> Origin:
    """The origin that a path or URL names; no request is made yet. Raises ValueError for an unknown scheme."""
    scheme, separator, _ = str(where).partition("://")
    if not separator:
        return Folder(Path(where))
    if scheme == "s3":
        from slipway.trainer.objects.bucket import (
            BucketOrigin,  # imported here, so that only a use of the network imports its libraries
        )

        return BucketOrigin(str(where))
    if scheme in ("http", "https"):
        from slipway.trainer.objects.peer import PeerOrigin

        return PeerOrigin(str(where))
    raise ValueError(f"{scheme}://…: expected a folder, s3://bucket/prefix, or http(s)://node:port of a peer")
