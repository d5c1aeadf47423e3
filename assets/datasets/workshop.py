"""Workshop: the folder in which a dataset is built, on the durable tier so that finished work is renamed out of it.

One build of a dataset at a time holds it. What a killed build left there is swept away by the next, so that no
half-written file outlives one attempt.
"""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainer import atomic, lock


@contextlib.contextmanager
def workshop(durable: Path, dataset: str) -> Iterator[Path]:
    """An empty folder of the dataset's own, gone afterwards; waits for another build of the dataset."""
    home = building(durable, dataset)
    with lock.exclusive(home):
        for leftover in home.iterdir():
            shutil.rmtree(leftover)
        folder = Path(tempfile.mkdtemp(dir=home))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def building(durable: Path, dataset: str) -> Path:
    """The folder whose lock a build of the dataset holds."""
    return durable / "datasets" / dataset / "building"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Have a disk that is full say for which file: neither Arrow nor Python names what it writes to."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise


def deliver(made: Path, target: Path) -> None:
    """Give a finished file of the workshop its place, with all its bytes on disk before its name."""
    descriptor = os.open(made, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    target.parent.mkdir(parents=True, exist_ok=True)
    made.replace(target)
    atomic.sync_folder(target.parent)
