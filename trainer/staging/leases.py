"""Leases: a process that reads a snapshot on a node's NVMe holds a lease, and retention keeps the snapshot.

A lease is a shared flock on ``leases/<snapshot>``. The kernel releases it when its holder ends in any way, so no lease
is left behind. The file's modification time is the last known use of the snapshot.
"""

import fcntl
import os
from pathlib import Path

from trainer.base import lock, paths


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

    Waits for a retention that is running, so that what lies on the NVMe afterwards stays. Raises ValueError for a name
    that is no digest.
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
