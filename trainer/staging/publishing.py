"""Replicas: a snapshot published to an object store, from which nodes can stage it as from the durable tier.

Shards go first and the manifest last, so a reader that finds a manifest finds all of its shards. Every object is
written once and carries its hash. By hand: `slipway data replicate`.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from slipway.trainer.base import digest, verify
from slipway.trainer.data import shards, snapshots
from slipway.trainer.objects import uploads
from slipway.trainer.objects.bucket import Bucket

AT_ONCE = 4

OnUpload = Callable[[int, int], None]
"""Called with the bytes that are uploaded so far, and with the bytes of all files."""


@dataclass(frozen=True)
class Published:
    """The content of a snapshot's replica, and the part that this call has uploaded."""

    shards: int
    bytes: int
    uploaded_shards: int
    uploaded_bytes: int
    seconds: float


class _File(NamedTuple):
    """A file to publish: its path, its name in the replica, and its expected content."""

    path: Path
    key: str
    content: verify.Measured


def publish(sha256: str, durable: Path, url: str, report: OnUpload | None = None) -> Published:
    """Upload the files of a snapshot in the durable tier that the replica below `url` (s3://bucket/prefix) lacks.

    Objects of the right size and hash do not change. Raises ValueError for a snapshot or shard that is missing or
    damaged in the durable tier, and for an object of that name with other content; and Unreachable if the store rejects
    a request or stays away too long; a further call finishes the work.
    """
    if not url.startswith("s3://"):
        raise ValueError(f"{url}: expected s3://bucket/prefix")
    began = time.monotonic()
    bucket = Bucket(url)
    snapshot = snapshots.read(durable, sha256)
    files = [_shard(durable, shard) for shard in snapshot.shards()]
    uploaded = _upload_all(bucket, files, report or (lambda *_: None))
    _upload(bucket, _manifest(durable, snapshot))
    uploads.drop_unfinished(bucket, {file.key for file in files})
    return Published(
        shards=len(files),
        bytes=sum(file.content.bytes for file in files),
        uploaded_shards=len(uploaded),
        uploaded_bytes=sum(file.content.bytes for file in uploaded),
        seconds=time.monotonic() - began,
    )


def _shard(durable: Path, shard: shards.ShardFile) -> _File:
    path = shards.shard_path(durable, shard)
    return _File(path, path.relative_to(durable).as_posix(), verify.Measured(shard.bytes, shard.blake3))


def _manifest(durable: Path, snapshot: snapshots.Snapshot) -> _File:
    data = snapshot.manifest()
    path = shards.manifest_path(durable, snapshot.sha256)
    return _File(path, path.relative_to(durable).as_posix(), verify.Measured(len(data), digest.of_bytes(data)))


def _upload_all(bucket: Bucket, files: list[_File], report: OnUpload) -> list[_File]:
    """Upload all files, some at a time; returns those that were not there. The first failure ends the uploads."""
    done = 0
    total = sum(file.content.bytes for file in files)
    uploaded = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(_upload, bucket, file): file for file in files}
        try:
            for future in as_completed(running):
                file = running[future]
                uploaded += [file] if future.result() else []
                done += file.content.bytes
                report(done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return uploaded


def _upload(bucket: Bucket, file: _File) -> bool:
    """Create the object unless it exists; whether it was created. Raises ValueError for a bad file or object."""
    blocks = verify.passing(verify.blocks(file.path), file.content, file.path)
    try:
        return uploads.create(bucket, file.key, blocks, file.content)
    except FileNotFoundError:
        raise ValueError(f"{file.path}: missing, expected {file.content.bytes} bytes") from None
