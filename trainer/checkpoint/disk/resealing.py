"""Re-sealing: the keys of a checkpoint's encrypted files, wrapped with another key in one small file beside them.

The bytes of the checkpoint stay as they were committed, and so do its manifest and its hash. Whoever holds the key that
wraps opens the files; the key with which they were encrypted is not needed any more. The wrapping is AES-256-GCM, and
each wrapped key is bound to the header of its file. Without a record that is whole, the files have the key that they
were encrypted with.

    keys.json    which key wraps, and by file the nonce (12), the wrapped key (32) and the tag (16), in hex
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from slipway.trainer.base import codec

RECORD, FORMAT = "keys.json", "slipway.keys/1"
NONCE = 12
CONTEXT = "slipway 2026 wraps the keys of a checkpoint's files"


@dataclass(frozen=True)
class WrappedKeys:
    """The keys of a checkpoint's files."""

    key: str
    """The id of the key that wraps them."""
    files: Mapping[str, str]
    """By file, in hex."""

    def unwrapped(self, secret: bytes, file: str, header: bytes) -> bytes:
        """The key of a file. Raises ValueError for a record that was changed, or is of another file."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            data = bytes.fromhex(self.files[file])
            return AESGCM(_wrapping(secret)).decrypt(data[:NONCE], data[NONCE:], header)
        except (InvalidTag, ValueError):
            raise ValueError(f"{RECORD}: the key of {file} is not the one that was wrapped") from None


def wrapped(secret: bytes, file_key: bytes, header: bytes) -> str:
    """A file's key, wrapped with a secret, for a file that begins with `header`."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE)
    return (nonce + AESGCM(_wrapping(secret)).encrypt(nonce, file_key, header)).hex()


def encode(keys: WrappedKeys) -> bytes:
    """The content of the record."""
    return codec.encode(keys, FORMAT)


def decode(data: bytes, where: object) -> WrappedKeys:
    """The record in `data`. Raises ValueError, which names it `where`."""
    return codec.decode(WrappedKeys, data, where, FORMAT)


def beside(path: Path) -> WrappedKeys | None:
    """The wrapped keys in the folder of a file, None where there are none. Raises ValueError and OSError."""
    return codec.read_if_there(path.with_name(RECORD), WrappedKeys, FORMAT)


def _wrapping(secret: bytes) -> bytes:
    return blake3(secret, derive_key_context=CONTEXT).digest()
