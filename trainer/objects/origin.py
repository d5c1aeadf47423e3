"""An origin: a source of files for a staging; one interface for a folder, an object store and a peer node.

An origin gives only shards, manifests and the files of checkpoints, by their names in a tier, so no name leads anywhere
else. The bytes from an origin are not trusted: the reader compares hashes and tries the next origin.
"""

from typing import BinaryIO, Protocol

from slipway.trainer.base import paths


class Missing(Exception):
    """The origin answered that it has no such file."""


class Coming(Missing):
    """The origin does not have the file yet; it is about to have it."""

    def __init__(self, message: str, bytes: int) -> None:
        super().__init__(message)
        self.bytes = bytes
        """Those that it has so far."""


class Unreachable(Exception):
    """The origin did not answer, or broke off; another origin may have the file."""


class Away(Unreachable):
    """Unreachable in a way that often passes: no server answers, a server is overloaded, a connection broke."""


class Origin(Protocol):
    """Where files can be read from. Its `str()` is the name that people know it by, without credentials."""

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        """A stream of the file's bytes from `offset` on, for reading once; its reads raise Unreachable.

        Raises Missing (Coming, if the origin announces the file) and Unreachable, with a message that has the file and
        the reason; and ValueError for a name that is neither a shard's nor a manifest's. Before that, it has repeated
        failed requests for `patience.SECONDS`.
        """


LONGEST_SMALL_FILE = 256 << 20
"""Bytes: more than the manifest of a million shards has."""
CHUNK = 1 << 20


def small(stream: BinaryIO, where: str, most: int = LONGEST_SMALL_FILE) -> bytes:
    """All bytes of a small file, such as a manifest, in bounded memory, because the sender is not trusted.

    Raises Unreachable for an origin that sends more than `most` bytes.
    """
    data = bytearray()
    while chunk := stream.read(CHUNK):
        data += chunk
        if len(data) > most:
            raise Unreachable(f"{where}: found more than {most} bytes, expected a small file")
    return bytes(data)


def checked(name: str) -> str:
    """The name, if it is that of a shard, a manifest or a checkpoint's file; else raises ValueError."""
    if not paths.PUBLISHED.fullmatch(name) and not paths.CHECKPOINT_FILE.fullmatch(name):
        raise ValueError(
            f"{name!r}: expected shards/<64 hex digits>.shard or snapshots/<64 hex digits>.json, "
            "or checkpoints/<training>/<step>.<token>/<file>"
        )
    return name
