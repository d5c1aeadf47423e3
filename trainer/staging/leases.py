"""Leases: a process that reads a snapshot on a node's NVMe holds a lease, which protects it from removal.

A lease of a whole snapshot is a shared flock on ``leases/<snapshot>``; the file's modification time is the last known
use of the snapshot. A lease of some shards is a flock on ``held/<id>.json``, which lists them, and the list follows its
window. The kernel releases both when the holder ends in any way, so no lease is left behind.
"""

import contextlib
import fcntl
import io
import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from slipway.trainer.base import lock, parsing, paths, regular_file


class Lease:
    """A held lease: released by `release`, at the end of a `with`, or with the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Release the lease; the snapshot counts as used until now."""
        if self._descriptor is not None:
            os.utime(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = None

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def hold(nvme: Path, snapshot_sha256: str) -> Lease:
    """Hold a lease on a snapshot, staged or not. Any number of processes may hold a lease on it at once.

    It waits for a running retention, so that the shards on the NVMe afterwards stay. Raises ValueError for a name that
    is no digest.
    """
    path = paths.lease(nvme, snapshot_sha256)
    with lock.shared(path.parent):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.utime(descriptor)
    return Lease(descriptor)


def is_held(nvme: Path, snapshot_sha256: str) -> bool:
    """Whether any process holds a lease now; the answer lasts only under the exclusive lock of `leases/`."""
    try:
        descriptor = os.open(paths.lease(nvme, snapshot_sha256), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


class ShardLease:
    """A lease of some shards, which the holder replaces from time to time; released with the process, or by `release`.

    The holder is one process: a second one takes a lease of its own.
    """

    def __init__(self, nvme: Path, shards: Iterable[str]) -> None:
        """Hold these shards, by their BLAKE3. Raises OSError when the list cannot be written."""
        self._nvme = nvme
        self._path = nvme / paths.SHARD_LEASES / f"{uuid.uuid4().hex}.json"
        with lock.shared(nvme / paths.LEASES):
            self._path.parent.mkdir(exist_ok=True)
            self._file = io.FileIO(str(self._path), "x+")
            fcntl.flock(self._file, fcntl.LOCK_SH)
        self.hold(shards)

    def hold(self, shards: Iterable[str]) -> None:
        """Hold these shards from now on, and no others. Waits for a removal that is under way.

        A list that does not grow is replaced in its place, so that a window can shrink while the disk is full.
        """
        data = json.dumps(sorted(shards)).encode()
        before = os.fstat(self._file.fileno()).st_size
        with lock.shared(self._nvme / paths.LEASES):
            if len(data) > before:
                os.posix_fallocate(self._file.fileno(), 0, len(data))
            os.pwrite(self._file.fileno(), data.ljust(before), 0)

    def release(self) -> None:
        """Hold nothing any more."""
        if not self._file.closed:
            self._path.unlink(missing_ok=True)
            self._file.close()


def held_shards(nvme: Path) -> set[str]:
    """The shards that any process holds by a `ShardLease`. The caller has the exclusive lock of `leases/`.

    Removes the lists of processes that have ended.
    """
    names: set[str] = set()
    for path in (nvme / paths.SHARD_LEASES).glob("*"):
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        except BlockingIOError:
            names |= set(parsing.value(regular_file.read(path).strip(b"\0 ") or b"[]"))
        finally:
            os.close(descriptor)
    return names


def is_wanted(nvme: Path, shard: str) -> bool:
    """Whether a process holds a `ShardLease` of this shard, present or not: a hint that it is worth a wait.

    It takes no lock: a list that is replaced at this moment may be read in part.
    """
    for path in (nvme / paths.SHARD_LEASES).glob("*"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if shard.encode() in file.read() and _is_locked(file.fileno()):
                return True
    return False


def _is_locked(descriptor: int) -> bool:
    """Whether its holder lives. If not, this takes the lock for a moment, until the file is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
