"""Replicas: a snapshot published to an object store, from which nodes can stage it as from the durable tier.

Shards go first and the manifest last, so whoever finds a manifest finds all of its shards. Every object is
written once and carries its hash. By hand: ``python -m trainer.replica SHA256 --from DURABLE --to s3://BUCKET/PREFIX``.
"""

import argparse
import base64
import contextlib
import dataclasses
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from blake3 import blake3

from trainer import shards, snapshots
from trainer.objects import Bucket, Conflict
from trainer.origins import Missing, Unreachable

PART = 16 << 20
"""Bytes of one request; a longer file goes up in parts of this size, at most 10,000 of them."""
AT_ONCE = 4

Report = Callable[[int, int], None]
"""Told the bytes that are in place so far, and how many there will be."""


@dataclass(frozen=True)
class Published:
    """What a snapshot's replica holds, and what of it this call uploaded."""

    shards: int
    bytes: int
    uploaded_shards: int
    uploaded_bytes: int
    seconds: float


class _File(NamedTuple):
    """A file to publish: where it lies, its name in the replica, and what it must be."""

    path: Path
    key: str
    bytes: int
    blake3: str


def publish(sha256: str, durable: Path, url: str, report: Report | None = None) -> Published:
    """Upload what the replica below `url` (s3://bucket/prefix) lacks of a snapshot in the durable tier.

    Objects that are there with the right size and hash are left alone. Raises ValueError for a snapshot or shard
    that is missing or damaged in the durable tier and for an object of that name with another content, and
    Unreachable when the store refuses or is away for longer than patience lasts; calling again finishes.
    """
    if not url.startswith("s3://"):
        raise ValueError(f"{url}: expected s3://bucket/prefix")
    began, bucket = time.monotonic(), Bucket(url)
    snapshot = snapshots.read(durable, sha256)
    files = [_shard(durable, shard) for shard in snapshot.shards()]
    uploaded = _upload_all(bucket, files, report or (lambda *_: None))
    _upload(bucket, _manifest(durable, snapshot))
    _drop_unfinished(bucket, {file.key for file in files})
    return Published(
        shards=len(files),
        bytes=sum(file.bytes for file in files),
        uploaded_shards=len(uploaded),
        uploaded_bytes=sum(file.bytes for file in uploaded),
        seconds=time.monotonic() - began,
    )


def _shard(durable: Path, shard: shards.File) -> _File:
    path = shards.shard_path(durable, shard)
    return _File(path, path.relative_to(durable).as_posix(), shard.bytes, shard.blake3)


def _manifest(durable: Path, snapshot: snapshots.Snapshot) -> _File:
    data, path = snapshot.manifest(), shards.manifest_path(durable, snapshot.sha256)
    return _File(path, path.relative_to(durable).as_posix(), len(data), blake3(data).hexdigest())


def _upload_all(bucket: Bucket, files: list[_File], report: Report) -> list[_File]:
    """Bring all files up, some at a time; returns those that were not there. The first failure ends it."""
    done, total, uploaded = 0, sum(file.bytes for file in files), []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(_upload, bucket, file): file for file in files}
        try:
            for future in as_completed(running):
                file = running[future]
                uploaded += [file] if future.result() else []
                done += file.bytes
                report(done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return uploaded


def _upload(bucket: Bucket, file: _File) -> bool:
    """Create the object unless it is there and right; says whether it was created.

    A request whose answer was lost is repeated, and then finds its own object, or its upload gone.
    """
    if _is_there(bucket, file):
        return False
    try:
        if file.bytes <= PART:
            [part] = _parts(file)
            metadata = {"Metadata": {"blake3": file.blake3}}
            bucket.call("put_object", file.key, Body=part, IfNoneMatch="*", ChecksumSHA256=_sha256(part), **metadata)
        else:
            _upload_in_parts(bucket, file)
    except (Conflict, Missing):
        if not _is_there(bucket, file):
            raise
        return False
    return True


def _is_there(bucket: Bucket, file: _File) -> bool:
    """Whether the object exists. Raises ValueError when it is another one than the file."""
    try:
        head = bucket.head(file.key)
    except Missing:
        return False
    found = head["ContentLength"], head["Metadata"].get("blake3")
    if found != (file.bytes, file.blake3):
        raise ValueError(
            f"{bucket.url(file.key)}: found {found[0]} bytes with BLAKE3 {found[1]} in its metadata, expected "
            f"{file.bytes} bytes with BLAKE3 {file.blake3}: nothing is overwritten; remove it and publish again"
        )
    return True


def _upload_in_parts(bucket: Bucket, file: _File) -> None:
    """Nothing is visible before the last request; a file that turns out damaged ends without it."""
    started = bucket.call(
        "create_multipart_upload", file.key, ChecksumAlgorithm="SHA256", Metadata={"blake3": file.blake3}
    )
    upload: dict[str, Any] = {"UploadId": started["UploadId"]}
    try:
        parts = []
        for number, data in enumerate(_parts(file), start=1):
            checksum = {"ChecksumSHA256": _sha256(data)}
            sent = bucket.call("upload_part", file.key, PartNumber=number, Body=data, **upload, **checksum)
            parts.append({"PartNumber": number, "ETag": sent["ETag"], **checksum})
        bucket.call("complete_multipart_upload", file.key, MultipartUpload={"Parts": parts}, IfNoneMatch="*", **upload)
    except ValueError:
        with contextlib.suppress(Missing):
            bucket.call("abort_multipart_upload", file.key, **upload)
        raise


def _parts(file: _File) -> Iterator[bytes]:
    """The file's content. Raises ValueError before the last part is given when it is not what it must be."""
    hasher, left = blake3(), file.bytes
    try:
        with file.path.open("rb") as stream:
            while left > 0:
                data = stream.read(PART)
                hasher.update(data)
                left -= len(data)
                if left <= 0 or not data:
                    found = hasher.update(stream.read()).hexdigest()
                    if found != file.blake3:
                        raise ValueError(f"{file.path}: damaged: found BLAKE3 {found}, expected {file.blake3}")
                yield data
    except FileNotFoundError:
        raise ValueError(f"{file.path}: missing: expected {file.bytes} bytes with BLAKE3 {file.blake3}") from None


def _sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def _drop_unfinished(bucket: Bucket, keys: set[str]) -> None:
    """Drop what killed uploads of these objects left: the objects exist, so none of them can be finished."""
    listed = bucket.call("list_multipart_uploads", Prefix=bucket.prefix)
    for upload in listed.get("Uploads", ()):
        key = upload["Key"].removeprefix(bucket.prefix)
        if key in keys:
            bucket.call("abort_multipart_upload", key, UploadId=upload["UploadId"])


def main(arguments: list[str] | None = None) -> int:
    """Publish one snapshot and print what was done as one JSON line; 1 and a message when it cannot be."""
    parser = argparse.ArgumentParser(prog="python -m trainer.replica", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("snapshot", metavar="SHA256", help="name of the snapshot: the SHA-256 of its manifest")
    parser.add_argument("--from", dest="durable", type=Path, required=True, help="folder of the durable tier")
    parser.add_argument("--to", dest="url", required=True, help="s3://bucket/prefix; credentials from AWS_*")
    options = parser.parse_args(arguments)
    try:
        published = publish(options.snapshot, options.durable, options.url)
    except (ValueError, OSError, Unreachable) as error:
        print(f"replica: {error}", file=sys.stderr)
        return 1
    print(json.dumps(dataclasses.asdict(published)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
