"""A tier under a prefix of an object store. Each object is created once; the manifest comes last and is the commit."""

from collections.abc import Iterator

from slipway.trainer.base import digest
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, CheckpointFile
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable
from slipway.trainer.objects import uploads
from slipway.trainer.objects.bucket import AlreadyThere, Bucket
from slipway.trainer.objects.origin import Missing, Unreachable

CHUNK = 1 << 20
"""Bytes of one read."""


class ObjectTier:
    """A `Tier` under the prefix `url`, s3://bucket/prefix."""

    def __init__(self, url: str) -> None:
        self._bucket = Bucket(url)

    def __str__(self) -> str:
        return str(self._bucket)

    def put(self, folder: str, name: str, chunks: Iterator[bytes], expected: CheckpointFile) -> None:
        try:
            uploads.create(self._bucket, f"{folder}/{name}", chunks, expected)
        except (Unreachable, AlreadyThere) as error:
            raise TierUnavailable(str(error)) from error

    def amend(self, folder: str, name: str, data: bytes) -> None:
        try:
            self._bucket.call("put_object", f"{folder}/{name}", **uploads.checked(data))
        except (Unreachable, AlreadyThere, Missing) as error:
            raise TierUnavailable(str(error)) from error

    def finish(self, folder: str, manifest: bytes) -> None:
        self.put(folder, MANIFEST, iter([manifest]), CheckpointFile(len(manifest), digest.of_bytes(manifest)))

    def read(self, folder: str, name: str) -> Iterator[bytes]:
        try:
            with self._bucket.open(f"{folder}/{name}") as stream:
                while chunk := stream.read(CHUNK):
                    yield chunk
        except Missing as error:
            raise DamagedCheckpoint(str(error)) from error
        except (Unreachable, AlreadyThere) as error:
            raise TierUnavailable(str(error)) from error

    def holds(self, folder: str) -> bool:
        try:
            self._bucket.head(f"{folder}/{MANIFEST}")
        except Missing:
            return False
        except Unreachable as error:
            raise TierUnavailable(str(error)) from error
        return True

    def remove(self, folder: str) -> None:
        """Remove the manifest first, as in a folder."""
        try:
            keys = [entry.key for entry in Bucket(self._bucket.url(folder)).objects()]
            for key in sorted(keys, key=lambda key: key != MANIFEST):
                self._bucket.call("delete_object", f"{folder}/{key}")
        except (Missing, Unreachable) as error:
            raise TierUnavailable(str(error)) from error

    def folders(self, under: str) -> dict[str, float]:
        try:
            manifests = [
                entry for entry in Bucket(self._bucket.url(under)).objects() if entry.key.endswith(f"/{MANIFEST}")
            ]
        except (Missing, Unreachable) as error:
            raise TierUnavailable(str(error)) from error
        return {f"{under}/{entry.key.removesuffix(f'/{MANIFEST}')}": entry.modified for entry in manifests}

    def unfinished(self, under: str) -> list[str]:
        try:
            present = {f"{under}/{entry.key.partition('/')[0]}" for entry in Bucket(self._bucket.url(under)).objects()}
        except (Missing, Unreachable) as error:
            raise TierUnavailable(str(error)) from error
        return sorted(present - self.folders(under).keys())
