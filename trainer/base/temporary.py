"""Temporary: a folder among the machine's temporary files that goes with its process, however that ends.

A process that is killed removes nothing. So each folder has a file that its process has locked. The kernel lets go of
the lock whatever became of the process, and whoever makes the next folder, or starts an instance, removes those that
nobody holds. The lock is on a file: one on a folder is not seen by other machines where the files lie on NFS.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

PREFIX = "slipway-tmp-"
LOCK, INSIDE = "lock", "in"


@contextlib.contextmanager
def folder(what: str) -> Iterator[Path]:
    """An empty folder, named after what it is for, and removed at the end or once its process is gone."""
    remove_abandoned()
    path, held = _made(what)
    try:
        yield path / INSIDE
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(held)


def remove_abandoned() -> None:
    """Remove what dead processes have left; what belongs to another user, or cannot be removed, stays."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        for left in [Path(each.path) for each in found if each.name.startswith(PREFIX) and _is_ours(each)]:
            with contextlib.suppress(OSError):
                _remove(left)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder of this user, and no link to one."""
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except OSError:  # somebody else has just removed it
        return False


def _remove(left: Path) -> None:
    """Remove an abandoned folder; under another name first, so that nobody who is about to lock it takes it for theirs.
    Raises OSError."""
    held = _locked(left)
    try:
        gone = left.rename(left.with_name(f"{PREFIX}gone-{uuid.uuid4().hex}"))
        shutil.rmtree(gone, ignore_errors=True)
    finally:
        os.close(held)


def _made(what: str) -> tuple[Path, int]:
    """A new folder and its open lock. Whoever looks before it is locked takes it for an abandoned one: then another."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{what}-"))
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            held = _locked(path)
            try:
                (path / INSIDE).mkdir()
            except FileNotFoundError:
                os.close(held)
                raise
            return path, held


def _locked(path: Path) -> int:
    """The lock of a folder, open. Raises BlockingIOError when a process holds it."""
    held = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held
