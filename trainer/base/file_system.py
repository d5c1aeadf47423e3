"""File systems: what the one below a folder can do of what Slipway builds on, found by trying it.

Durability depends on a few operations: a name that only one of several writers can create, a rename that replaces in
one step, bytes that stay after fsync, locks. Network file systems lack some of them, or pretend to have them. If a
necessary operation is missing and has no replacement, the tier is unusable, with an error before a training starts.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import regular_file

FULL = {errno.ENOSPC, errno.EDQUOT}
"""A full disk proves nothing about its file system."""
LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", "ramfs"}
ACROSS_HOSTS = {"ceph", "nfs4", "gpfs", "fuse.juicefs", "fuse.ceph", "fuse.ceph-fuse"}
"""Types whose flock holds on all hosts, unless a mount option limits it."""
MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class Ability:
    """One operation, whether it works, and the consequence if not."""

    name: str
    fault: str
    """Empty if it works."""
    instead: str
    """The replacement; empty if there is none."""

    @property
    def is_missed(self) -> bool:
        """Whether it does not work and has no replacement."""
        return bool(self.fault) and not self.instead


def abilities(folder: Path) -> list[Ability]:
    """The capabilities of a folder's file system. Raises OSError if nothing can be written there."""
    scratch = Path(tempfile.mkdtemp(prefix=".probe-", dir=folder))
    try:
        return [Ability(name, _fault(probe, scratch), instead) for name, probe, instead in PROBES]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def require(folder: Path, tier: str) -> str:
    """A line about a tier's file system. Raises OSError, with the missing operations, if a training cannot use it."""
    try:
        results = abilities(folder)
    except OSError as error:
        if error.errno in FULL:
            return f"{kind(folder)}; not probed: {error.strerror}"
        raise OSError(f"the tier {tier}, {folder} ({kind(folder)}): cannot be written: {error.strerror}") from error
    missed = [f"{ability.name}: {ability.fault}" for ability in results if ability.is_missed]
    if missed:
        raise OSError(
            f"the tier {tier}, {folder} ({kind(folder)}), cannot hold a training: {'; '.join(missed)}. "
            "docs/platform.md says which file systems can, and with which options"
        )
    missing = [f"no {ability.name} ({ability.instead})" for ability in results if ability.fault]
    return "; ".join([kind(folder), lock_scope(folder), *missing])


def kind(folder: Path) -> str:
    """The kernel's name of a folder's file system; "unknown" if it has none."""
    return _mount(folder)[0]


def lock_scope(folder: Path) -> str:
    """The scope of a lock there, by the mount's options: one host cannot test it alone."""
    kind, options = _mount(folder)
    local = {"nolock", "local_lock=flock", "local_lock=all", "localflock"} & options
    if kind in LOCAL or local:
        return "locks hold on this host" + (f" alone (mounted with {', '.join(sorted(local))})" if local else "")
    if kind in ACROSS_HOSTS or (kind == "lustre" and "flock" in options):
        return "locks hold on all hosts"
    return "locks may not hold on other hosts"


def _mount(folder: Path) -> tuple[str, set[str]]:
    """The type and the options of the mount below a folder (proc(5), mountinfo)."""
    number = folder.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    for line in MOUNTS.read_text().splitlines():
        mount, _, super_block = line.partition(" - ")
        if mount.split()[2] == device:
            name, _, options = super_block.split(" ", 2)
            return name, {*mount.split()[5].split(","), *options.split(",")}
    return "unknown", set()


def _fault(probe: Callable[[Path], str], scratch: Path) -> str:
    """The fault of an operation. Raises OSError for a full disk."""
    try:
        return probe(scratch)
    except OSError as error:
        if error.errno in FULL:
            raise
        return f"it fails with {errno.errorcode.get(error.errno or 0, 'an unknown error')}"


def _exclusive_create(scratch: Path) -> str:
    path = scratch / "exclusive"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return ""
    return "a second writer created the same file"


def _hard_link(scratch: Path) -> str:
    one = _file(scratch / "linked")
    other = scratch / "link"
    os.link(one, other)
    try:
        os.link(_file(scratch / "third"), other)
    except FileExistsError:
        return "" if one.samefile(other) else "a link is another file"
    return "a link replaced a file"


def _rename(scratch: Path) -> str:
    new = _file(scratch / "new", b"new")
    old = _file(scratch / "old", b"old")
    new.rename(old)
    return "" if regular_file.read(old) == b"new" and not new.exists() else "a rename did not replace"


def _rename_of_folders(scratch: Path) -> str:
    for name in ("from", "to"):
        (scratch / name).mkdir()
        _file(scratch / name / name)
    with contextlib.suppress(OSError):
        (scratch / "from").rename(scratch / "to")
    return "" if (scratch / "to" / "to").exists() else "a rename replaced a folder that has files"


def _sync_of_files(scratch: Path) -> str:
    with open(_file(scratch / "synced"), "rb+") as file:
        os.fsync(file.fileno())
    return ""


def _sync_of_folders(scratch: Path) -> str:
    with _opened(scratch) as descriptor:
        os.fsync(descriptor)
    return ""


def _lock(scratch: Path) -> str:
    path = _file(scratch / "locked")
    for where in (path, scratch):
        with _opened(where) as one, _opened(where) as other:
            fcntl.flock(one, fcntl.LOCK_EX)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            return "two holders had one lock at once"
    return ""


def _file(path: Path, data: bytes = b"probe") -> Path:
    path.write_bytes(data)
    return path


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


PROBES: tuple[tuple[str, Callable[[Path], str], str], ...] = (
    ("exclusive create", _exclusive_create, ""),
    ("hard links", _hard_link, "files are created exclusively"),
    ("rename of files", _rename, ""),
    ("rename of folders", _rename_of_folders, ""),
    ("sync of files", _sync_of_files, ""),
    ("sync of folders", _sync_of_folders, "new names may be lost in a power cut"),
    ("locks", _lock, "processes may do the same work twice"),
)
"""The operations to test, with their replacements."""
