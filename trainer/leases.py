"""Leases: who reads a snapshot on a node's NVMe says so, and retention leaves it alone.

A lease is a shared flock on ``leases/<snapshot>``. The kernel gives it back when its holder ends, however it ends,
so none is ever left behind. The file's modification time is the last known use of the snapshot.
"""

import fcntl
import os
from pathlib import Path

from trainer import digest, lock


class Lease:
    """A held lease: given back by `release`, at the end of a `with`, or with the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Give it back; the snapshot counts as used until now."""
        if self._descriptor is not None:
            os.utime(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = None

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def hold(nvme: Path, snapshot_sha256: str) -> Lease:
    """Hold a lease on a snapshot, which may still have to be staged. Any number of processes may hold one at once.

    Waits for a retention that is running, so that what is found on the NVMe afterwards stays. Raises ValueError
    for a name that is no digest.
    """
    path = lease_path(nvme, snapshot_sha256)
    with lock.shared(path.parent):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.utime(descriptor)
    return Lease(descriptor)


def is_held(nvme: Path, snapshot_sha256: str) -> bool:
    """Whether anybody holds a lease now; only under the exclusive lock of `leases/` does that stay so."""
    try:
        descriptor = os.open(lease_path(nvme, snapshot_sha256), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def lease_path(nvme: Path, snapshot_sha256: str) -> Path:
    return nvme / "leases" / digest.checked(snapshot_sha256)
