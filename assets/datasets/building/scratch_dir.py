"""The scratch folder of a dataset's build. It is in the durable tier, so that a rename publishes a finished file.

Only one build of a dataset at a time uses it. The next build removes the remains of a killed build, so no half-written
file stays for longer than one attempt.
"""

import contextlib
import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from slipway.trainer.base import lock


@contextlib.contextmanager
def scratch_dir(durable: Path, dataset: str) -> Iterator[Path]:
    """An empty folder for one build of the dataset, removed afterwards; waits until no other build uses it."""
    home = building(durable, dataset)
    with writing_content(durable), lock.exclusive(home):
        for leftover in home.iterdir():
            # Rename it first, so that a worker of the killed build cannot add a file during the removal.
            gone = leftover.rename(home / f"gone-{uuid.uuid4().hex}")
            shutil.rmtree(gone)
        folder = Path(tempfile.mkdtemp(dir=home))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def writing_content(durable: Path) -> contextlib.AbstractContextManager[None]:
    """A lock for writers of files named by their content: garbage collection waits until the files have references."""
    return lock.shared(collecting(durable))


def collecting(durable: Path) -> Path:
    """The folder that garbage collection locks exclusively."""
    return durable / "snapshots"


def building(durable: Path, dataset: str) -> Path:
    """The folder that a build of the dataset locks."""
    return durable / "datasets" / dataset / "building"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Add the path of the file to the error of a full disk, because Arrow and Python leave it out."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
