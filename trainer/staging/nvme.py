"""A node's NVMe folder: which of its shards were verified, and one process at a time for each other shard.

A shard stays verified for one boot of the machine. Until the machine stops, the page cache has the written bytes, even
if a process is killed, so no sync to the disk is necessary. After a crash or a power cut there is a new boot: no shard
counts as verified, and every shard is hashed again before its use.
"""

import contextlib
import fcntl
import functools
import io
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from slipway.trainer.base import journal, paths, regular_file
from slipway.trainer.data import shards

Stamp = tuple[int, int, int]
"""Bytes, time of the last modification in nanoseconds, and inode: a file with the same ones was not touched."""


@functools.cache
def boot() -> str:
    """The kernel's name of the machine's current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Verified:
    """The node's shards that were found whole in this boot: a journal that every staging appends to."""

    def __init__(self, nvme: Path) -> None:
        self._nvme = nvme
        self._path = paths.verified(nvme, boot())
        self._lock = threading.Lock()
        self._stamps: dict[str, Stamp] = {}
        self._offset = 0
        self.refresh()

    def refresh(self) -> None:
        """Read the notes of other stagings since the last call."""
        with self._lock:
            reading = journal.read(self._path, self._offset)
            self._offset = reading.offset
            for event in reading.events:
                self._stamps[event["shard"]] = (event["bytes"], event["modified"], event["inode"])

    def not_verified(self, shard_files: Iterable[shards.ShardFile]) -> list[shards.ShardFile]:
        """The shards that are not known to be whole, in their order."""
        try:
            folder = os.open(self._nvme / paths.SHARDS, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return list(shard_files)
        try:
            return [shard for shard in shard_files if not self._holds(shard, folder)]
        finally:
            os.close(folder)

    def note(self, shard: shards.ShardFile) -> None:
        """Note that the shard's present file is whole. The caller holds the shard's claim (`claimed`).

        Each note is one short append, so that lines of several stagings never mix; a torn line does not count.
        """
        size, modified, inode = _stamp(shards.shard_path(self._nvme, shard).stat())
        line = journal.frame({"shard": shard.blake3, "bytes": size, "modified": modified, "inode": inode})
        self._path.parent.mkdir(exist_ok=True)
        with naming(self._path), open(self._path, "ab", buffering=0) as file:
            file.write(line)

    def _holds(self, shard: shards.ShardFile, folder: int) -> bool:
        known = self._stamps.get(shard.blake3)
        if known is None or known[0] != shard.bytes:
            return False
        try:
            return known == _stamp(os.stat(shard.blake3 + paths.SUFFIXES[paths.SHARDS], dir_fd=folder))
        except FileNotFoundError:
            return False


@contextlib.contextmanager
def claimed(nvme: Path, shard: shards.ShardFile, wait: bool) -> Iterator[io.FileIO | None]:
    """Claim the work on a shard: the file in which its copy grows, with the bytes of earlier attempts.

    None if another staging has the claim, unless `wait`. The caller renames a completed copy into place; an incomplete
    copy stays for the next attempt, and an empty file is removed.
    """
    path = partial_path(nvme, shard)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _locked(path, wait)
    if descriptor is None:
        yield None
        return
    with io.FileIO(str(path), "r+", opener=lambda *_: descriptor) as file:
        try:
            yield file
        finally:
            if os.fstat(descriptor).st_size == 0:
                path.unlink(missing_ok=True)


def partial_path(nvme: Path, shard: shards.ShardFile) -> Path:
    return paths.partial(nvme, shards.shard_path(nvme, shard).name)


def put(path: Path, data: bytes, nvme: Path) -> None:
    """Put `data` at `path` on the NVMe by a rename, unless the file holds it already.

    Not `atomic.replace`: nothing on the NVMe is synced to the disk, and the temporary file is locked.
    """
    with contextlib.suppress(FileNotFoundError):
        if regular_file.read(path) == data:
            return
    temporary = paths.partial(nvme, path.name)
    for folder in (path.parent, temporary.parent):
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = _locked(temporary, wait=True)
    assert descriptor is not None
    with naming(path), open(descriptor, "wb") as file:
        os.truncate(descriptor, 0)
        os.fchmod(descriptor, 0o644)
        file.write(data)
        file.flush()
        temporary.replace(path)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in the error of a failed write, if the system does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot be staged: {os.strerror(error.errno or 0)}", str(path)) from error


def partial_files(nvme: Path, before: float) -> list[Path]:
    """The partial files that were last written before `before`, seconds since the epoch."""
    try:
        entries = list((nvme / paths.PARTIAL).iterdir())
    except FileNotFoundError:
        return []
    return [path for path in entries if _modified(path) < before]


def remove_partial(nvme: Path, before: float) -> None:
    """Remove the `partial_files` that no process works on."""
    for path in partial_files(nvme, before):
        descriptor = _locked(path, wait=False)
        if descriptor is not None:
            path.unlink()
            os.close(descriptor)


def _modified(path: Path) -> float:
    """When the file was last written; infinitely late for a file that its owner has just renamed or removed."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _locked(path: Path, wait: bool) -> int | None:
    """The file at `path`, opened and locked. It is opened again when its last holder renamed or removed it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _stamp(stat: os.stat_result) -> Stamp:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
