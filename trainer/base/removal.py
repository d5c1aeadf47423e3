"""Removal of files and folders below a root, through no symbolic link.

A link on the path to the file, or in its place, is an error that names it, because its target belongs to another owner.
A link inside a removed folder is removed; its target stays.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath


def remove_folder(root: Path, name: str, first: str = "") -> bool:
    """Remove the folder `name` of `root` with all that it holds, its file `first` before the others.

    False when it is not there. Raises OSError.
    """
    with _parent(root, name) as (parent, last):
        if parent is None or not _is_plain(root, name, parent, last, stat.S_ISDIR):
            return False
        if first:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{last}/{first}", dir_fd=parent)
        shutil.rmtree(last, dir_fd=parent)
    return True


def remove_file(root: Path, name: str) -> bool:
    """Remove the file `name` of `root`. False when it is not there. Raises OSError."""
    with _parent(root, name) as (parent, last):
        if parent is None or not _is_plain(root, name, parent, last, stat.S_ISREG):
            return False
        os.unlink(last, dir_fd=parent)
    return True


def rename_file(root: Path, name: str, other: str) -> bool:
    """Give the file `name` of `root` the name `other` in its folder. False when it is not there. Raises OSError."""
    return _rename(root, name, other, stat.S_ISREG)


def rename_folder(root: Path, name: str, other: str) -> bool:
    """Give the folder `name` of `root` the name `other` beside it. False when it is not there. Raises OSError."""
    return _rename(root, name, other, stat.S_ISDIR)


def _rename(root: Path, name: str, other: str, kind: Callable[[int], bool]) -> bool:
    with _parent(root, name) as (parent, last):
        if parent is None or not _is_plain(root, name, parent, last, kind):
            return False
        os.rename(last, other, src_dir_fd=parent, dst_dir_fd=parent)
    return True


@contextlib.contextmanager
def _parent(root: Path, name: str) -> Iterator[tuple[int | None, str]]:
    """A descriptor of the folder that holds `name`, None when there is no such folder, and the last part of `name`."""
    *above, last = PurePosixPath(name).parts
    assert ".." not in above and last != "..", name
    descriptor: int | None = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number, part in enumerate(above):
            assert descriptor is not None
            if not _is_plain(root, "/".join(above[: number + 1]), descriptor, part, stat.S_ISDIR):
                os.close(descriptor)
                descriptor = None
                break
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, last
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _is_plain(root: Path, name: str, parent: int, last: str, kind: Callable[[int], bool]) -> bool:
    """Whether an entry is there; raises OSError for one that is a link, or not of the kind."""
    try:
        mode = os.stat(last, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "a symbolic link: nothing is removed through it", str(root / name))
    if not kind(mode):
        raise OSError(errno.ENOTDIR if kind is stat.S_ISDIR else errno.EISDIR, "of another kind", str(root / name))
    return True
