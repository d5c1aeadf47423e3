"""Reading: the bytes of a checkpoint's files, read with retries, and the damage that a read detects.

A file is damaged if its bytes differ from the commit, or if it is proven missing. A read that fails proves nothing: the
tier may be away, and the bytes may be whole. Files are not mapped into memory, because a bad sector would end the
process instead of raising an error.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from slipway.trainer.base import listing, progress, verify

Bytes = bytearray | memoryview
Read = Callable[[str, int, int | None], Bytes]
"""Reads a file of a checkpoint by its name, as `read` does by its path."""


class DamagedCheckpoint(Exception):
    """A checkpoint differs from its commit; the message names the file, what was found and what was expected."""


def read(path: Path, begin: int = 0, count: int | None = None) -> bytearray:
    """`count` bytes of a file from byte `begin` on; all that follow if None.

    Raises DamagedCheckpoint for a file that is proven missing or too short, and OSError for any other failure.
    """
    with finding_damage(path):
        return verify.persistently(lambda: _read(path, begin, count))


def from_folder(folder: Path) -> Read:
    """A `Read` of the files in a folder."""
    return lambda name, begin, count: read(folder / name, begin, count)


@contextlib.contextmanager
def finding_damage(path: Path | str) -> Iterator[None]:
    """The context of a read: raises DamagedCheckpoint for unexpected content, and if `path` is proven missing."""
    try:
        yield
    except verify.Mismatch as error:
        raise DamagedCheckpoint(str(error)) from None
    except OSError as error:
        if proves_absence(Path(path)):
            raise DamagedCheckpoint(f"{path}: cannot be read: {error.strerror}") from error
        raise


def proves_absence(path: Path) -> bool:
    """Whether a file of a checkpoint is proven missing: the checkpoint's folder, or the one above it, can be listed.

    If the folder of a training's checkpoints is missing too, nothing is proven: an unmounted tier looks the same.
    """
    try:
        return listing.is_absent(path)
    except OSError:
        return False


def _read(path: Path, begin: int, count: int | None) -> bytearray:
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size - begin if count is None else count
        data = bytearray(size)
        view = memoryview(data)
        done = 0
        while done < size:
            got = os.preadv(file.fileno(), [view[done : done + verify.BLOCK]], begin + done)
            if not got:
                raise DamagedCheckpoint(f"{path}: found {begin + done} bytes, expected {begin + size} or more")
            done += got
            progress.BYTE_COUNT.add(got)
    return data
