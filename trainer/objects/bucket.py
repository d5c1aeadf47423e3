"""Object stores: the objects below a prefix of an S3 bucket, read in ranges and written once.

Every request goes through s3fs; endpoint and credentials come from the environment (AWS_*). This module alone repeats
requests after temporary failures, and every failure has a message with the request and the reason.
"""

import contextlib
import http.client
import io
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, cast

from slipway.trainer.base import proxy_bypass
from slipway.trainer.base.patience import patiently
from slipway.trainer.objects.origin import Away, Missing, Unreachable, checked

READ_AHEAD = 8 << 20
"""The fewest bytes that one request of a reader fetches."""
CONNECT_SECONDS = 5
READ_SECONDS = 10
PASSING_STATUS = {408, 409, 429, 500, 502, 503, 504}
"""HTTP statuses after which the same request may succeed; 409 is a create-only write at the time of another one."""


class AlreadyThere(ValueError):
    """The object differs from the request's expectation: it has changed, or it exists and was to be created."""


class StoredObject(NamedTuple):
    """One object: its key below the prefix, its bytes, the ETag of its content without quotes, when it was modified."""

    key: str
    bytes: int
    etag: str
    modified: float


class Bucket:
    """A prefix of a bucket; it can be pickled, and used by threads and after a fork. `str()` of it is its URL.

    Every method raises Missing, AlreadyThere, Unreachable with a remedy, and Away if the store does not answer for
    `patience.SECONDS`.
    """

    def __init__(self, url: str) -> None:
        name, _, prefix = url.removeprefix("s3://").partition("/")
        self.name = name
        self.prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._client: tuple[int, Any] | None = None

    def __str__(self) -> str:
        return f"s3://{self.name}/{self.prefix}".rstrip("/")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{self.prefix}{key}"

    def objects(self) -> Iterator[StoredObject]:
        """All objects below the prefix, in the store's order."""
        token: dict[str, str] = {}
        while True:
            page = self.call("list_objects_v2", Prefix=self.prefix, **token)
            for entry in page.get("Contents", ()):
                yield StoredObject(
                    entry["Key"][len(self.prefix) :],
                    entry["Size"],
                    entry["ETag"].strip('"'),
                    entry["LastModified"].timestamp(),
                )
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def head(self, key: str) -> dict[str, Any]:
        """The store's facts about an object: ContentLength, ETag, Metadata. Raises Missing."""
        try:
            return self.call("head_object", key)
        except Missing:
            self.call("head_bucket")
            raise

    def open(self, key: str, offset: int = 0, etag: str | None = None) -> BinaryIO:
        """A seekable stream of one version of an object, `etag` or the present one, at `offset`.

        Opening and reading raise AlreadyThere when the object is of another version, or becomes one.
        """
        head = self.head(key)
        if etag not in (None, head["ETag"].strip('"')):
            raise AlreadyThere(_changed(self.url(key)))
        stream = io.BufferedReader(_Reader(self, key, head), READ_AHEAD)
        stream.seek(offset)
        return cast(BinaryIO, stream)

    def call(self, method: str, key: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The answer to one request about the bucket or a key, by botocore's names; repeated while failures pass."""
        where = {"Bucket": self.name} if key is None else {"Bucket": self.name, "Key": self.prefix + key}

        def once() -> dict[str, Any]:
            with self.explained(key):
                return cast(dict[str, Any], self._s3().call_s3(method, **where, **parameters))

        return patiently(once, Away)

    def fetch(self, key: str, etag: str, start: int, end: int) -> bytes:
        """Bytes `start` to `end` (excluded) of an object of this ETag, whole: a broken answer is requested again."""
        from fsspec.asyn import sync

        request = {"Bucket": self.name, "Key": self.prefix + key, "IfMatch": etag, "Range": f"bytes={start}-{end - 1}"}

        def once() -> bytes:
            with self.explained(key):
                fs = self._s3()
                body = fs.call_s3("get_object", **request)["Body"]
                try:
                    return cast(bytes, sync(fs.loop, body.read))
                finally:
                    body.close()

        return patiently(once, Away)

    @contextlib.contextmanager
    def explained(self, key: str | None) -> Iterator[None]:
        """Raise the meaning of a failure: s3fs, botocore and aiohttp have some thirty exceptions for failures."""
        from aiohttp import ClientError
        from botocore.exceptions import BotoCoreError

        try:
            yield
        except (OSError, ClientError, BotoCoreError, http.client.HTTPException) as error:
            raise _meaning(str(self) if key is None else self.url(key), key is None, error) from error

    def _s3(self) -> Any:
        """The s3fs file system of this process: its event loop does not survive a fork."""
        import s3fs

        if self._client is None or self._client[0] != os.getpid():
            once = {"retries": {"total_max_attempts": 1}, "max_pool_connections": 32}
            timeouts = {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
            proxy_bypass.bypass()
            fs = s3fs.S3FileSystem(config_kwargs=once | timeouts, use_listings_cache=False, skip_instance_cache=True)
            fs.retries = 1
            self._client = os.getpid(), fs
        return self._client[1]


class _Reader(io.RawIOBase):
    """One version of an object, fetched in the ranges that are read."""

    def __init__(self, bucket: Bucket, key: str, head: dict[str, Any]) -> None:
        super().__init__()
        self._bucket = bucket
        self._key = key
        self._etag = head["ETag"]
        self._size = head["ContentLength"]
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        data = self._bucket.fetch(self._key, self._etag, self._position, end)
        if len(data) != end - self._position:
            expected = end - self._position
            raise Unreachable(f"{self._bucket.url(self._key)}: found {len(data)} bytes in a range of {expected}")
        buffer[: len(data)] = data
        self._position = end
        return len(data)

    def readall(self) -> bytes:
        """All that is left, in ranges of `READ_AHEAD`; Python's own method would fetch 8 KiB at a time."""
        piece = bytearray(READ_AHEAD)
        pieces = []
        while count := self.readinto(piece):
            pieces.append(bytes(memoryview(piece)[:count]))
        return b"".join(pieces)


class BucketOrigin:
    """An origin: a snapshot's replica below a prefix of a bucket."""

    def __init__(self, url: str) -> None:
        self._bucket = Bucket(url)

    def __str__(self) -> str:
        return str(self._bucket)

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        """As `Origin.open`. An object that is replaced while it is read is Unreachable."""
        checked(name)
        try:
            return self._bucket.open(name, offset)
        except AlreadyThere as error:
            raise Unreachable(str(error)) from error


def _changed(url: str) -> str:
    return f"{url}: changed since it was listed or opened: try again when no process writes there"


def _meaning(url: str, of_bucket: bool, error: Exception) -> Exception:
    """The meaning of a failed request, with the codes of the store and never with its texts or a credential."""
    from botocore.exceptions import NoCredentialsError, PartialCredentialsError

    answer = getattr(error.__cause__, "response", None) or getattr(error, "response", None) or {}
    code = str(answer.get("Error", {}).get("Code", ""))
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "NoSuchBucket" or (of_bucket and status == 404):
        return Unreachable(f"{url}: found no such bucket")
    if status == 404:
        return Missing(f"{url}: missing")
    if status == 412:
        return AlreadyThere(_changed(url))
    if status in (401, 403) or isinstance(error, NoCredentialsError | PartialCredentialsError):
        return Unreachable(
            f"{url}: access denied ({code or type(error).__name__}): "
            "expected credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY that may use it"
        )
    if status in PASSING_STATUS or (not status and _passes(error)):
        return Away(f"{url}: no answer ({code or type(error).__name__})")
    return Unreachable(f"{url}: {code or type(error).__name__} ({status or error})")


def _passes(error: Exception) -> bool:
    """Whether an error on the way to the store or back often passes."""
    from aiohttp import ClientError
    from botocore import exceptions

    on_the_way = (exceptions.HTTPClientError, exceptions.ConnectionError, ClientError, http.client.HTTPException)
    return isinstance(error, (*on_the_way, OSError))
