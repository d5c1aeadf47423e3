"""The scratch folder, in which a dataset is built: in the durable tier, so that finished files are renamed out of it.

One build of a dataset at a time has it. The next build removes what a killed build left there, so no half-written
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
    """An empty folder for one build of the dataset, removed afterwards; waits for another build of the dataset."""
    home = building(durable, dataset)
    with writing_content(durable), lock.exclusive(home):
        for leftover in home.iterdir():
            # Under another name first, so that a worker of the killed build adds no file while it is removed.
            gone = leftover.rename(home / f"gone-{uuid.uuid4().hex}")
            shutil.rmtree(gone)
        folder = Path(tempfile.mkdtemp(dir=home))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def writing_content(durable: Path) -> contextlib.AbstractContextManager[None]:
    """Held by all that write files named by their content, so that none is collected as garbage before it is referred
    to."""
    return lock.shared(collecting(durable))


def collecting(durable: Path) -> Path:
    """The folder that the garbage collection locks, alone."""
    return durable / "snapshots"


def building(durable: Path, dataset: str) -> Path:
    """The folder that a build of the dataset locks."""
    return durable / "datasets" / dataset / "building"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Add the path of the file to the error of a full disk that names none: neither Arrow nor Python does."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
