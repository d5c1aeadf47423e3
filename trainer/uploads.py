"""Uploads: an object that is created once, from chunks, whole or not at all, every part checked by the store.

A create-only request (``If-None-Match: *``) decides between writers. One whose answer was lost and that is repeated
finds the object there; the digest in its metadata then says whether it is the one that was meant.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from trainer.objects import Bucket, Conflict
from trainer.origins import Missing

PART = 16 << 20
"""Bytes of a part, and of the largest object that goes in one request; a store takes 5 MiB to 5 GiB."""
MOST_PARTS = 10_000
DIGEST = "blake3"
"""The name in an object's metadata under which its digest stands."""


def create(bucket: Bucket, key: str, chunks: Iterable[bytes], size: int, digest: str) -> None:
    """Create an object of `size` bytes from `chunks`; the same one, created before, is left as it is.

    `digest` is its BLAKE3 and goes into its metadata. What `chunks` raises leaves no object. Raises Conflict when
    another one has the key, and as `Bucket` does.
    """
    if is_there(bucket, key, digest):
        return
    parts = _parts(chunks, max(PART, -(-size // (MOST_PARTS - 1))))
    try:
        if size <= PART:
            body = b"".join(parts)
            metadata = {DIGEST: digest}
            bucket.call("put_object", key, Body=body, Metadata=metadata, IfNoneMatch="*", ChecksumAlgorithm="CRC32")
        else:
            _in_parts(bucket, key, parts, digest)
    except Conflict:
        if not is_there(bucket, key, digest):
            raise Conflict(f"{bucket.url(key)}: found another object, expected none") from None


def is_there(bucket: Bucket, key: str, digest: str) -> bool:
    """Whether the object is there with this digest in its metadata."""
    with contextlib.suppress(Missing):
        found: dict[str, str] = bucket.head(key)["Metadata"]
        return found.get(DIGEST) == digest
    return False


def _in_parts(bucket: Bucket, key: str, parts: Iterator[bytes], digest: str) -> None:
    """A multipart upload; given up, it leaves nothing."""
    checked = {"ChecksumAlgorithm": "CRC32"}
    upload = bucket.call("create_multipart_upload", key, Metadata={DIGEST: digest}, **checked)["UploadId"]
    try:
        done: list[dict[str, Any]] = []
        for number, part in enumerate(parts, 1):
            sent = bucket.call("upload_part", key, UploadId=upload, PartNumber=number, Body=part, **checked)
            done.append({"PartNumber": number, "ETag": sent["ETag"], "ChecksumCRC32": sent["ChecksumCRC32"]})
        parameters = {"UploadId": upload, "MultipartUpload": {"Parts": done}, "IfNoneMatch": "*"}
        bucket.call("complete_multipart_upload", key, **parameters)
    except BaseException:
        with contextlib.suppress(Exception):  # what went wrong first is what is told
            bucket.call("abort_multipart_upload", key, UploadId=upload)
        raise


def _parts(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The bytes of `chunks` in pieces of `size`; the last one may be shorter."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)
