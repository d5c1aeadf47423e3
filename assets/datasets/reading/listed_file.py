"""A listed file: the content of a file or an object of a source, which must match the listing.

A process may write to a source, or remove files, during a build. Then the read data is discarded, because it is not the
content of the listed file.
"""

import io
import os

from slipway.assets.datasets.reading.document import Reason
from slipway.trainer.objects.bucket import AlreadyThere

BUFFER = 1 << 18


class UnreadFile(Exception):
    """A listed file that cannot be read now; the next build tries it again. `reason` is that of an unfit document.

    It is not a ValueError, because readers treat those as damage in a file's content.
    """

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.reason = reason


def version_of(stat: os.stat_result) -> str:
    """The version of a file. It includes the change time, which `cp -p` does not preserve."""
    return f"{stat.st_size}-{stat.st_mtime_ns}-{stat.st_ctime_ns}-{stat.st_ino}"


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without waiting, even if it has become a pipe since the listing."""
    return os.open(path, flags | os.O_NONBLOCK)


class LocalFile(io.FileIO):
    """A file that must have its listed version both when it is opened and at its end."""

    def __init__(self, path: str, version: str) -> None:
        try:
            super().__init__(path, opener=_without_waiting)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            message = f"{path}: it was listed, and is gone now; start the build again"
            raise UnreadFile(message, "gone since it was listed") from None
        except PermissionError:
            message = f"{path}: found no permission to read it, expected a readable file"
            raise UnreadFile(message, "no permission to read it") from None
        self._version = version
        self._check()

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        count = super().readinto(buffer)
        if not count:
            self._check()
        return count

    def readall(self) -> bytes:
        data = super().readall()
        self._check()
        return data

    def _check(self) -> None:
        if version_of(os.fstat(self.fileno())) != self._version:
            self.close()
            raise UnreadFile(
                f"{self.name}: changed since the corpus was listed; start the build again when no process writes there",
                "changed while it was read",
            )


class StoredFile(io.RawIOBase):
    """An object of a store that must stay the listed one."""

    def __init__(self, inner: io.BufferedReader) -> None:
        super().__init__()
        self._inner = inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._inner.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._inner.seek(offset, whence)

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        try:
            return self._inner.readinto1(buffer)
        except AlreadyThere as error:
            raise UnreadFile(str(error), "changed while it was read") from None
