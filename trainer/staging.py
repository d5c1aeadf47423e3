"""Staging: a verified copy of a dataset snapshot from the durable tier to a node's own NVMe.

Every byte is hashed while it is copied and becomes visible by a rename, so a shard on the NVMe is whole or
absent. A marker then remembers each file's size and modification time: while they hold, staging again reads
nothing. By hand: ``python -m trainer.staging SHA256 --from DURABLE --to NVME``.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from trainer import atomic, digest, lock, shards

CHUNK = 4 << 20
"""Bytes that are read, hashed and written at a time."""

Report = Callable[[int, int], None]
"""Told the bytes that are in place so far, and how many there will be."""

Stats = dict[str, list[int]]
"""Of each staged shard, by its BLAKE3: bytes, and the time of its last modification in nanoseconds."""


@dataclass(frozen=True)
class Staged:
    """What a staging found and did; `copied_*` counts what was missing or damaged on the NVMe."""

    shards: int
    bytes: int
    copied_shards: int
    copied_bytes: int
    seconds: float


def stage(snapshot_sha256: str, durable: Path, nvme: Path, report: Report | None = None) -> Staged:
    """Bring the snapshot's manifest and shards to `nvme`, whole, and leave a marker.

    Several may stage on one node: they take turns, and who comes later copies only what is still missing.
    Raises ValueError for a manifest or shard that is missing or damaged in the durable tier, and OSError when
    the NVMe cannot be written (a full disk, say). What was whole before stays, and nothing partial is visible.
    """
    began = time.monotonic()
    if is_staged(snapshot_sha256, nvme):
        return _staged(shards.read_manifest(nvme, snapshot_sha256), [], began)
    snapshot = shards.read_manifest(durable, snapshot_sha256)
    with lock.exclusive(nvme / "staged"):
        _sweep(nvme)
        stats, copied = _bring(snapshot, durable, nvme, report or (lambda *_: None))
        _leave_manifest(snapshot, nvme)
        atomic.replace(_marker(nvme, snapshot_sha256), atomic.readable_json({"shards": stats}))
    return _staged(snapshot, copied, began)


def is_staged(snapshot_sha256: str, nvme: Path) -> bool:
    """Whether the snapshot lies on `nvme` as staging left it: a good manifest, and files that match the marker."""
    try:
        snapshot = shards.read_manifest(nvme, snapshot_sha256)
    except ValueError:
        return False
    marked = _marked(nvme, snapshot_sha256)
    found = {shard.blake3: _stat(shards.shard_path(nvme, shard)) for shard in snapshot.shards()}
    return all(stat is not None and marked.get(name) == stat for name, stat in found.items())


def _staged(snapshot: shards.Snapshot, copied: list[shards.Shard], began: float) -> Staged:
    every = snapshot.shards()
    return Staged(
        shards=len(every),
        bytes=sum(shard.bytes for shard in every),
        copied_shards=len(copied),
        copied_bytes=sum(shard.bytes for shard in copied),
        seconds=time.monotonic() - began,
    )


def _bring(snapshot: shards.Snapshot, durable: Path, nvme: Path, report: Report) -> tuple[Stats, list[shards.Shard]]:
    """Copy the shards that are not whole on the NVMe; returns the stats of all, and which were copied."""
    every, marked = snapshot.shards(), _marked(nvme, snapshot.sha256)
    stats: Stats = {}
    copied, done, total = [], 0, sum(shard.bytes for shard in every)
    for shard in every:
        stat = _whole(shard, nvme, marked)
        if stat is None:
            stat = _copy(shard, shards.shard_path(durable, shard), shards.shard_path(nvme, shard))
            copied.append(shard)
        stats[shard.blake3] = stat
        done += shard.bytes
        report(done, total)
    if copied:
        atomic.sync_folder(nvme / "shards")
    return stats, copied


def _whole(shard: shards.Shard, nvme: Path, marked: Stats) -> list[int] | None:
    """The stat of the shard's file if that is as the marker says or, where it is not, hashes as it should."""
    path = shards.shard_path(nvme, shard)
    stat = _stat(path)
    if stat is None or stat[0] != shard.bytes:
        return None
    return stat if marked.get(shard.blake3) == stat or digest.of_file(path) == shard.blake3 else None


def _copy(shard: shards.Shard, source: Path, target: Path) -> list[int]:
    """Copy one shard in one pass and give its stat; it takes its name only when its hash was found right."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        reader = io.FileIO(source, "rb")
    except FileNotFoundError:
        raise ValueError(f"{source}: missing: expected a shard of {shard.bytes} bytes") from None
    with reader, _temporary(target) as (writer, temporary):
        size, found = _pump(reader, writer, source, target)
        if (size, found) != (shard.bytes, shard.blake3):
            raise ValueError(
                f"{source}: damaged: found {size} bytes with BLAKE3 {found}, "
                f"expected {shard.bytes} bytes with BLAKE3 {shard.blake3}"
            )
        temporary.chmod(0o644)
        temporary.replace(target)
        stat = os.fstat(writer.fileno())
        return [stat.st_size, stat.st_mtime_ns]


def _pump(reader: io.FileIO, writer: io.FileIO, source: Path, target: Path) -> tuple[int, str]:
    """Copy to the end and to the disk; returns how many bytes there were, and their BLAKE3."""
    hasher, buffer, size = blake3(), memoryview(bytearray(CHUNK)), 0
    while True:
        with _naming(source):
            count = reader.readinto(buffer)
        if not count:
            break
        hasher.update(buffer[:count])
        with _naming(target):
            _write_all(writer, buffer[:count])
        size += count
    with _naming(target):
        os.fsync(writer.fileno())
    return size, hasher.hexdigest()


def _write_all(writer: io.FileIO, data: memoryview) -> None:
    while data:
        data = data[writer.write(data) :]


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in the error of a failed read or write, which the system leaves out."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot be staged: {os.strerror(error.errno or 0)}", str(path)) from error


@contextlib.contextmanager
def _temporary(target: Path) -> Iterator[tuple[io.FileIO, Path]]:
    """A file to write beside `target`; gone afterwards unless it was renamed away."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with io.FileIO(descriptor, "wb") as file:
            yield file, Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _sweep(nvme: Path) -> None:
    """Remove what killed stagings left; under the node's lock, no living one has any."""
    for folder in ("shards", "snapshots"):
        for leftover in (nvme / folder).glob(".*.tmp"):
            leftover.unlink(missing_ok=True)


def _leave_manifest(snapshot: shards.Snapshot, nvme: Path) -> None:
    """Put the manifest on the NVMe, over a damaged one if need be."""
    path = shards.manifest_path(nvme, snapshot.sha256)
    if not path.exists() or path.read_bytes() != snapshot.manifest():
        atomic.replace(path, snapshot.manifest())


def _stat(path: Path) -> list[int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return [stat.st_size, stat.st_mtime_ns]


def _marker(nvme: Path, snapshot_sha256: str) -> Path:
    return nvme / "staged" / f"{snapshot_sha256}.json"


def _marked(nvme: Path, snapshot_sha256: str) -> Stats:
    """What the marker says of each shard; a missing or damaged marker says nothing, so all is verified."""
    try:
        value: dict[str, Any] = json.loads(_marker(nvme, snapshot_sha256).read_bytes())
        return dict(value["shards"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}


def main(arguments: list[str] | None = None) -> int:
    """Stage one snapshot and print what was done as one JSON line; 1 and a message when it cannot be."""
    parser = argparse.ArgumentParser(prog="python -m trainer.staging", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("snapshot", metavar="SHA256", help="name of the snapshot: the SHA-256 of its manifest")
    parser.add_argument("--from", dest="durable", type=Path, required=True, help="folder of the durable tier")
    parser.add_argument("--to", dest="nvme", type=Path, required=True, help="folder on the node's NVMe")
    options = parser.parse_args(arguments)
    try:
        staged = stage(options.snapshot, options.durable, options.nvme)
    except (ValueError, OSError) as error:
        print(f"staging: {error}", file=sys.stderr)
        return 1
    print(json.dumps(dataclasses.asdict(staged)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
