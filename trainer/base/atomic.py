"""Atomic writes: a file or a folder appears with all its bytes, or not at all.

Every durable fact of the platform becomes visible through one function of this module, and survives a power cut once
the function has returned:

    create_only   a new file; the function decides races: exactly one of several writers of a path wins
    replace       a file that replaces an older one
    move          a finished file, written elsewhere on the same file system, to its path
    show          a finished folder, whose files `write` has put on disk, to its path

There are two exceptions, which give their reasons: journals append (`slipway.trainer.base.journal`), and a node's NVMe
is not synced while a snapshot is staged (`slipway.trainer.staging.nvme`).
"""

import contextlib
import ctypes
import errno
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""The errors of a file system without hard links, or without further ones (link(2))."""
NO_FLAGS = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}
"""The errors of a file system whose rename always replaces (renameat2(2))."""
NO_SYNC = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}
"""The errors of a file system on which folders need no sync (fsync(2))."""
_AT_FDCWD = -100  # <fcntl.h>
_RENAME_NOREPLACE = 1  # <linux/fs.h>
_libc = ctypes.CDLL(None, use_errno=True)


def create_only(path: Path, data: bytes, scratch: Path | None = None, mode: int = 0o644) -> bool:
    """Create `path` with `data`; False, with nothing changed, when it is already there.

    A hard link is the create-only step: unlike ``O_EXCL`` it never shows a half-written file, and
    unlike a rename it never replaces one. A file system without hard links has
    `_create_without_link`. The bytes are first written in `scratch`, a folder of the same file system, by default the
    file's own. Raises OSError when a folder cannot be written.
    """
    with _written(path, data, scratch, mode=mode) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            # NFS repeats a request whose reply was lost, and the second one finds the link that the first one made.
            if not temporary.samefile(path):
                return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if not _create_without_link(temporary, path, data, mode):
                return False
    _sync(path.parent)
    return True


def replace(path: Path, data: bytes, scratch: Path | None = None, lasting: bool = True) -> None:
    """Write `data` to `path` and replace an older file; readers see the old bytes or the new ones. Raises OSError.

    Without `lasting`, it does not wait for the disk: a file that is replaced each second need not survive a power cut.
    """
    with _written(path, data, scratch, lasting) as temporary:
        temporary.replace(path)
    if lasting:
        _sync(path.parent)


def move(temporary: Path, path: Path) -> None:
    """Move the finished file `temporary` to `path`, and replace an older file. Raises OSError."""
    _sync(temporary)
    make_folder(path.parent)
    temporary.replace(path)
    _sync(path.parent)


def show(temporary: Path, folder: Path) -> bool:
    """Put the finished folder `temporary` at `folder`; False, with nothing changed, when that has files already.

    The files of `temporary` are on disk: `write` put them there. Raises OSError.
    """
    for below in (temporary, *(path for path in temporary.rglob("*") if path.is_dir())):
        _sync(below)
    make_folder(folder.parent)
    try:
        temporary.rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return False
    _sync(folder.parent)
    return True


def write(path: Path, blocks: Iterable[bytes | memoryview], mode: int | None = None) -> None:
    """Write a file of a folder that is not visible yet, and have its bytes and its mode on disk. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb", buffering=0) as file:
        for block in blocks:
            rest = memoryview(block)
            while rest:
                rest = rest[file.write(rest) :]
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def _create_without_link(temporary: Path, path: Path, data: bytes, mode: int) -> bool:
    """`create_only` on a file system without hard links. Raises OSError."""
    try:
        return _rename_unless_there(temporary, path)
    except OSError as error:
        if error.errno not in NO_FLAGS:
            raise
    # The last way: a reader may see the file while it is written, and a writer that dies leaves a part of it. Records
    # have a checksum, by which a reader knows.
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True


def _rename_unless_there(temporary: Path, path: Path) -> bool:
    """renameat2(2) with RENAME_NOREPLACE; False when `path` is there. Raises OSError, also without such a call."""
    rename = getattr(_libc, "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if rename(_AT_FDCWD, os.fsencode(temporary), _AT_FDCWD, os.fsencode(path), _RENAME_NOREPLACE) == 0:
        return True
    if ctypes.get_errno() == errno.EEXIST:
        return False
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))


def canonical_json(value: Any) -> bytes:
    """A JSON value with sorted keys and without blanks, so that equal values have equal hashes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def readable_json(value: Any) -> bytes:
    """A JSON value with sorted keys and line breaks, for files that people read too."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, so that they survive a power cut too."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(path: Path) -> None:
    """Make a file's bytes, or a folder's entries, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _written(path: Path, data: bytes, scratch: Path | None, lasting: bool = True, mode: int = 0o644) -> Iterator[Path]:
    """A temporary file for `path` with `data`, on disk if `lasting`; removed unless the caller has renamed it."""
    make_folder(path.parent)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=scratch or path.parent)
    temporary = Path(name)
    try:
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if lasting:
                    os.fsync(file.fileno())
        except OSError as error:
            error.filename = str(path)  # the error of a full disk does not name the file
            raise
        temporary.chmod(mode)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
