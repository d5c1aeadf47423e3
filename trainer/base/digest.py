"""Digests: BLAKE3 names and verifies content, SHA-256 names manifests.

BLAKE3 runs at several GB/s on one core, SHA-256 without its CPU instructions at 0.3 GB/s: BLAKE3 verifies content at
the speed of a disk. Other tools can check the SHA-256 of a manifest. `slipway.trainer.base.verify` hashes files and
streams.
"""

import hashlib
import re

from blake3 import blake3

_HEX = re.compile(r"[0-9a-f]{64}")


def of_bytes(data: bytes | memoryview) -> str:
    """BLAKE3 of `data`, 64 hex digits."""
    return blake3(data).hexdigest()


def sha256(data: bytes) -> str:
    """SHA-256 of `data`, 64 hex digits: the name of a manifest."""
    return hashlib.sha256(data).hexdigest()


def checked(value: object) -> str:
    """`value`, if it is a digest, which may become part of a file's name. Raises ValueError otherwise."""
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError(f"found {value!r}, expected a digest of 64 hex digits")
    return value
