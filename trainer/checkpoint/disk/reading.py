"""Reading: the bytes of a checkpoint's files, read with patience, and the damage that a read finds.

Damage is what was read and is not what was committed, or what is proven not to be there. A read that fails proves
nothing: the tier may be away, and the bytes may be whole. Nothing is mapped into memory, where a bad sector would end
the process instead of raising an error.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from slipway.trainer.base import listing, progress, verify

Bytes = bytearray | memoryview
Read = Callable[[str, int, int | None], Bytes]
"""Reads a file of a checkpoint by its name, as `read` does one by its path."""


class DamagedCheckpoint(Exception):
    """A checkpoint differs from the one that was committed; the message names the file, what was found and expected."""


def read(path: Path, begin: int = 0, count: int | None = None) -> bytearray:
    """`count` bytes of a file from byte `begin` on, by default all that follow.

    Raises DamagedCheckpoint for a file that is proven missing or too short, and OSError for any other failure.
    """
    with finding_damage(path):
        return verify.persistently(lambda: _read(path, begin, count))


def from_folder(folder: Path) -> Read:
    """Reads the files of a folder."""
    return lambda name, begin, count: read(folder / name, begin, count)


@contextlib.contextmanager
def finding_damage(path: Path | str) -> Iterator[None]:
    """Raises DamagedCheckpoint for content that is not the expected one, and for a file proven not to be at `path`."""
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

    Where the folder of a training's checkpoints is missing too, nothing is proven: an unmounted tier looks like that.
    """
    try:
        return listing.is_absent(path)
    except OSError:
        return False


def _read(path: Path, begin: int, count: int | None) -> bytearray:
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size - begin if count is None else count
        data = bytearray(size)
        view, done = memoryview(data), 0
        while done < size:
            got = os.preadv(file.fileno(), [view[done : done + verify.BLOCK]], begin + done)
            if not got:
                raise DamagedCheckpoint(f"{path}: found {begin + done} bytes, expected {begin + size} or more")
            done += got
            progress.BYTE_COUNT.add(got)
    return data
