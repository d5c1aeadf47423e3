"""Re-sealing: the keys of a checkpoint's encrypted files, wrapped with another key in one small file beside them.

The bytes of the checkpoint do not change, and neither do its manifest and its hash. A reader with the wrapping key can
open the files; it no longer needs the key with which they were encrypted. The wrapping is AES-256-GCM, and each wrapped
key is bound to the header of its file. Without a whole record, the files open with their first key.

    keys.json    the id of the wrapping key, and by file the nonce (12), the wrapped key (32) and the tag (16), in hex
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from slipway.trainer.base import codec

RECORD = "keys.json"
FORMAT = "slipway.keys/1"
NONCE = 12
CONTEXT = "slipway 2026 wraps the keys of a checkpoint's files"


@dataclass(frozen=True)
class WrappedKeys:
    """The keys of a checkpoint's files."""

    key: str
    """The id of the wrapping key."""
    files: Mapping[str, str]
    """The wrapped keys by file, in hex."""

    def unwrapped(self, secret: bytes, file: str, header: bytes) -> bytes:
        """The key of a file. Raises ValueError if the record was changed, or belongs to another file."""
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
    """The record in `data`. Raises ValueError with the name `where`."""
    return codec.decode(WrappedKeys, data, where, FORMAT)


def beside(path: Path) -> WrappedKeys | None:
    """The wrapped keys in the folder of a file; None if there are none. Raises ValueError and OSError."""
    return codec.read_if_there(path.with_name(RECORD), WrappedKeys, FORMAT)


def _wrapping(secret: bytes) -> bytes:
    return blake3(secret, derive_key_context=CONTEXT).digest()
