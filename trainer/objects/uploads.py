"""Uploads: an object is created once, whole or not at all, and the store checks every part that reaches it.

A create-only request (``If-None-Match: *``) decides between writers. A request whose answer was lost is repeated, and
finds its own object there: the size of the object and the digest in its metadata tell it from another object.
"""

import base64
import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from slipway.trainer.base.verify import Content, Measured
from slipway.trainer.objects.bucket import AlreadyThere, Bucket
from slipway.trainer.objects.origin import Missing

PART = 16 << 20
"""Bytes of a part, and of the largest object that goes in one request; a store takes 5 MiB to 5 GiB."""
MOST_PARTS = 10_000
DIGEST = "blake3"
"""The name in an object's metadata under which its digest stands."""
SUM = "ChecksumCRC32"
CHECKSUM = {"ChecksumAlgorithm": "CRC32"}
"""The client sends a checksum with each part, and a store that knows it refuses a part that has another."""


def create(bucket: Bucket, key: str, chunks: Iterable[bytes], content: Content) -> bool:
    """Create an object from `chunks`, which have `content`; returns False if the same object exists already.

    Its digest goes into its metadata. An error in `chunks` leaves no object. Raises AlreadyThere if another object has
    the key, and as `Bucket`.
    """
    if _is_there(bucket, key, content):
        return False
    parts = _parts(chunks, max(PART, -(-content.bytes // (MOST_PARTS - 1))))
    metadata = {DIGEST: content.blake3}
    try:
        if content.bytes <= PART:
            body = b"".join(parts)
            bucket.call("put_object", key, Metadata=metadata, IfNoneMatch="*", **checked(body))
        else:
            _in_parts(bucket, key, parts, metadata, content)
    except (AlreadyThere, Missing):  # another writer was faster, or this one, and its answer was lost
        if not _is_there(bucket, key, content):
            raise
        return False
    return True


def checked(body: bytes, *, knows_checksums: bool = False) -> dict[str, Any]:
    """The parameters of a request with this body, which the store rejects if other bytes reach it.

    Ceph 16 and other stores ignore checksums, and answer without one, but check the MD5. It costs ten times as much as
    the CRC-32, and is omitted if the store is known to check that.
    """
    checks: dict[str, Any] = {"Body": body, **CHECKSUM}
    if not knows_checksums:
        md5 = hashlib.md5(body, usedforsecurity=False).digest()
        checks["ContentMD5"] = base64.b64encode(md5).decode()
    return checks


def drop_unfinished(bucket: Bucket, keys: set[str]) -> None:
    """Remove the parts of killed uploads of existing objects: these uploads cannot be finished."""
    listed = bucket.call("list_multipart_uploads", Prefix=bucket.prefix)
    for upload in listed.get("Uploads", ()):
        key = upload["Key"].removeprefix(bucket.prefix)
        if key in keys:
            bucket.call("abort_multipart_upload", key, UploadId=upload["UploadId"])


def _is_there(bucket: Bucket, key: str, content: Content) -> bool:
    """Whether the object exists. Raises AlreadyThere when its size or digest is not that of `content`."""
    try:
        head = bucket.head(key)
    except Missing:
        return False
    stored = Measured(head["ContentLength"], head["Metadata"].get(DIGEST, "unknown"))
    if (stored.bytes, stored.blake3) != (content.bytes, content.blake3):
        raise AlreadyThere(
            f"{bucket.url(key)}: found another object, of {stored.bytes} bytes with BLAKE3 {stored.blake3} in its "
            f"metadata, expected {content.bytes} bytes with BLAKE3 {content.blake3}: nothing was overwritten; remove "
            "the object and upload again"
        )
    return True


def _in_parts(bucket: Bucket, key: str, parts: Iterator[bytes], metadata: dict[str, str], content: Content) -> None:
    """A multipart upload: nothing is visible before its last request, and a failed one leaves nothing.

    On Ceph 16 the last request may replace an object, so the existence of one is checked just before.
    """
    upload = bucket.call("create_multipart_upload", key, Metadata=metadata, **CHECKSUM)["UploadId"]
    try:
        done: list[dict[str, Any]] = []
        for number, part in enumerate(parts, 1):
            checks = checked(part, knows_checksums=any(SUM in part_result for part_result in done))
            sent = bucket.call("upload_part", key, UploadId=upload, PartNumber=number, **checks)
            done.append({"PartNumber": number} | {name: sent[name] for name in ("ETag", SUM) if name in sent})
        if _is_there(bucket, key, content):
            raise AlreadyThere(f"{bucket.url(key)}: was created meanwhile")
        parameters = {"UploadId": upload, "MultipartUpload": {"Parts": done}, "IfNoneMatch": "*"}
        bucket.call("complete_multipart_upload", key, **parameters)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to report
            bucket.call("abort_multipart_upload", key, UploadId=upload)
        raise


def _parts(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The bytes of `chunks` in pieces of `size`; the last one may be shorter."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)
