"""Encryption of a checkpoint's files at rest, segment by segment, with a key from a file.

AES-256-GCM over segments in the STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizar, CRYPTO 2015), laid out as
Tink's AES-GCM-HKDF streaming AEAD: each file has its own key, derived from the key file and a random salt, and the
nonce of a segment is a random prefix, its number, and whether it is the last. So a segment that is changed, moved,
missing or cut off is always detected. The manifest's hashes are of the encrypted bytes: a file is verified before it is
decrypted.

    header    8 bytes "slipseal", 1 version, 8 key id, 32 salt, 7 nonce prefix
    segments  1 MiB of ciphertext and a tag of 16 bytes each; the last one may be shorter

A checkpoint may be sealed anew with another key: `slipway.trainer.checkpoint.disk.resealing`.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from slipway.trainer.base import regular_file
from slipway.trainer.checkpoint.disk import reading, resealing
from slipway.trainer.checkpoint.disk.resealing import WrappedKeys
from slipway.trainer.record.causes import UnfitNode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"slipseal\x01"
ID = 8
SALT = 32
PREFIX = 7
TAG = 16
HEADER = len(MAGIC) + ID + SALT + PREFIX
SEGMENT = 1 << 20
"""Bytes of plaintext in each segment but the last."""


class WrongKey(ValueError):
    """A file is encrypted with another key, or the configuration has no key; the file itself is not damaged."""


@dataclass(frozen=True)
class Key:
    """A key of 256 bits. Its `id` distinguishes keys and does not reveal the secret."""

    secret: bytes = field(repr=False)
    older: tuple["Key", ...] = ()
    """Keys that this one has replaced: they only decrypt."""

    @property
    def id(self) -> str:
        """16 hex digits."""
        return blake3(self.secret, derive_key_context="slipway 2026 id of a checkpoint key").digest(ID).hex()


def read_key(path: Path) -> Key:
    """The key in a file of 64 hex digits, and the older ones on the lines after it.

    Raises UnfitNode if the file cannot be read, and ValueError for a line that is no key; neither shows its content.
    """
    try:
        lines = [line.strip() for line in regular_file.read(path).splitlines() if line.strip()] or [b""]
    except OSError as error:
        raise UnfitNode(f"storage.key_file: {path}: cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines):
        if not re.fullmatch(rb"[0-9A-Fa-f]{64}", line):
            which = f"key {number + 1}: " if len(lines) > 1 else ""
            raise ValueError(f"storage.key_file: {path}: {which}found {len(line)} bytes, expected 64 hex digits")
    newest, *older = (bytes.fromhex(line.decode()) for line in lines)
    return Key(newest, tuple(map(Key, older)))


def encrypt(chunks: Iterable[bytes | memoryview], key: Key) -> Iterator[bytes]:
    """The encrypted file of the bytes of `chunks`, piece by piece; at most a segment and a chunk are in memory."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt = os.urandom(SALT)
    prefix = os.urandom(PREFIX)
    header = MAGIC + bytes.fromhex(key.id) + salt + prefix
    yield header
    cipher = AESGCM(_derived(key.secret, header))
    for number, (segment, last) in enumerate(_segments(chunks)):
        yield cipher.encrypt(_nonce(prefix, number, last), segment, header)


def read(path: Path, begin: int, count: int, key: Key | None) -> bytearray:
    """`count` bytes from byte `begin` on of an encrypted file, decrypted; only the segments that hold them are read.

    Raises WrongKey, ValueError where a segment was changed, and the errors of `reading.read`; a segment that is
    missing, which would have its tag at least, is damage.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    header = bytes(reading.read(path, 0, HEADER))
    size = path.stat().st_size - HEADER
    cipher = AESGCM(file_key(header, key, path.name, lambda: resealing.beside(path), str(path)))
    last = max(0, -(-size // (SEGMENT + TAG)) - 1)
    first = begin // SEGMENT
    end = -(-(begin + count) // SEGMENT)
    plain = bytearray()
    for number in range(first, end):
        start = number * (SEGMENT + TAG)
        segment = reading.read(path, HEADER + start, max(TAG, min(SEGMENT + TAG, size - start)))
        plain += _decrypt_segment(cipher, header, number, number == last, segment, str(path))
    return plain[begin - first * SEGMENT :][:count]


def is_encrypted(data: bytes | bytearray | memoryview) -> bool:
    """Whether a file that begins with `data` is encrypted."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def _segments(chunks: Iterable[bytes | memoryview]) -> Iterator[tuple[bytearray, bool]]:
    """The bytes of `chunks` in segments, and whether each is the last: a full one waits for the next byte."""
    buffer = bytearray()
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            if len(buffer) == SEGMENT:
                yield buffer, False
                buffer = bytearray()
            count = min(SEGMENT - len(buffer), len(view))
            buffer += view[:count]
            view = view[count:]
    yield buffer, True


def key_id(header: bytes, name: str) -> str:
    """The id of the key with which the file with this header was encrypted. Raises ValueError if it is no header."""
    if not is_encrypted(header) or len(header) < HEADER:
        raise ValueError(f"{name}: found no header of an encrypted file")
    return header[len(MAGIC) : len(MAGIC) + ID].hex()


def file_key(header: bytes, key: Key | None, file: str, wrapped: Callable[[], WrappedKeys | None], name: str) -> bytes:
    """The key of the segments after this header of a checkpoint's file `file`; messages call the file `name`.

    If `key` does not include the key of the header, `wrapped` reads the keys with which the checkpoint was sealed anew.
    Raises WrongKey, and ValueError if it is no header, or if the wrapped keys were changed.
    """
    file_key_id = key_id(header, name)
    if key is None:
        raise WrongKey(
            f"{name}: encrypted with key {file_key_id}, and storage.key_file is not set: name the file of that key"
        )
    secret_by_id = {candidate.id: candidate.secret for candidate in (*reversed(key.older), key)}
    if file_key_id in secret_by_id:
        return _derived(secret_by_id[file_key_id], header)
    keys = wrapped()
    if keys is not None and file in keys.files and keys.key in secret_by_id:
        return keys.unwrapped(secret_by_id[keys.key], file, header)
    anew = f", sealed anew with key {keys.key}" if keys is not None and file in keys.files else ""
    own_ids = " and ".join(candidate.id for candidate in (key, *key.older))
    raise WrongKey(
        f"{name}: encrypted with key {file_key_id}{anew}, and storage.key_file holds key {own_ids}: name the other file"
    )


def _decrypt_segment(
    cipher: "AESGCM", header: bytes, number: int, last: bool, segment: bytearray | memoryview, name: str
) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(_nonce(header[-PREFIX:], number, last), segment, header)
    except InvalidTag:
        raise ValueError(f"{name}: segment {number} is not the one that was encrypted") from None


def _derived(secret: bytes, header: bytes) -> bytes:
    """The key of the file that begins with this header and was encrypted with this secret."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    salt = header[len(MAGIC) + ID : -PREFIX]
    return HKDF(SHA256(), 32, salt, header[: len(MAGIC) + ID]).derive(secret)


def _nonce(prefix: bytes, number: int, last: bool) -> bytes:
    """12 bytes: the prefix, the number, and 1 for the last segment or 0."""
    return prefix + number.to_bytes(4, "big") + bytes([last])
