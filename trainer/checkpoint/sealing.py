"""Sealing: encryption of a checkpoint's files at rest, segment by segment, with a key from a file.

AES-256-GCM over segments in the STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizar, CRYPTO 2015), laid out as
Tink's AES-GCM-HKDF streaming AEAD: each file has a key of its own, derived from ours and a random salt, and a
segment's nonce is a random prefix, its number, and whether it is the last. So no segment can be changed, moved, left
out or cut off unseen. The manifest's hashes are of the sealed bytes: a file is verified first and opened then.

    header    8 bytes "slipseal", 1 version, 8 key id, 32 salt, 7 nonce prefix
    segments  1 MiB of ciphertext and a tag of 16 bytes each; the last one may be shorter
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from trainer.checkpoint import files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"slipseal\x01"
ID, SALT, PREFIX, TAG = 8, 32, 7, 16
HEADER = len(MAGIC) + ID + SALT + PREFIX
SEGMENT = 1 << 20
"""Bytes of plaintext in each segment but the last."""


class WrongKey(ValueError):
    """A file is sealed with another key, or is sealed and no key is given; its bytes are good."""


@dataclass(frozen=True)
class Key:
    """A key of 256 bits; `id` tells keys apart and gives nothing away."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """16 hex digits."""
        return blake3(self.secret, derive_key_context="slipway 2026 id of a checkpoint key").digest(ID).hex()


def read_key(path: Path) -> Key:
    """The key in a file of 64 hex digits. Raises ValueError, which never says what the file holds."""
    try:
        text = path.read_bytes().strip()
    except OSError as error:
        raise ValueError(f"storage.key_file: {path}: cannot be read: {error.strerror}") from None
    if not re.fullmatch(rb"[0-9A-Fa-f]{64}", text):
        raise ValueError(f"storage.key_file: {path}: found {len(text)} bytes, expected 64 hex digits")
    return Key(bytes.fromhex(text.decode()))


def seal(chunks: Iterable[bytes | memoryview], key: Key) -> Iterator[bytes]:
    """The sealed form of the bytes of `chunks`, piece by piece; at most a segment and a chunk are held."""
    salt, prefix = os.urandom(SALT), os.urandom(PREFIX)
    header = MAGIC + bytes.fromhex(key.id) + salt + prefix
    yield header
    cipher = _cipher(key, salt, header)
    for number, (segment, last) in enumerate(_segments(chunks)):
        yield cipher.encrypt(_nonce(prefix, number, last), segment, header)


def opened(sealed: bytes | memoryview, key: Key | None, name: str) -> bytearray:
    """What was sealed, all of it. Raises WrongKey, and ValueError where the bytes are not what was sealed.

    `name` is for the messages.
    """
    view = memoryview(sealed)
    header = bytes(view[:HEADER])
    cipher, plain = _opener(header, key, name), bytearray()
    starts = range(HEADER, len(view), SEGMENT + TAG)
    for number, start in enumerate(starts):
        plain += _open_segment(cipher, header, number, start == starts[-1], view[start : start + SEGMENT + TAG], name)
    if not starts:
        raise ValueError(f"{name}: found no segment after the header")
    return plain


def read(path: Path, begin: int, count: int, key: Key | None) -> bytearray:
    """`count` bytes from `begin` on of what was sealed to a file; only the segments that hold them are read.

    Raises WrongKey, ValueError where the bytes are not what was sealed, and as `files.read`.
    """
    header, size = bytes(files.read(path, 0, HEADER)), path.stat().st_size - HEADER
    cipher, last = _opener(header, key, str(path)), max(0, -(-size // (SEGMENT + TAG)) - 1)
    first, end, plain = begin // SEGMENT, -(-(begin + count) // SEGMENT), bytearray()
    for number in range(first, end):
        start = number * (SEGMENT + TAG)
        segment = files.read(path, HEADER + start, min(SEGMENT + TAG, size - start))
        plain += _open_segment(cipher, header, number, number == last, segment, str(path))
    return plain[begin - first * SEGMENT :][:count]


def is_sealed(data: bytes | bytearray | memoryview) -> bool:
    """Whether a file that begins with `data` is sealed."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def _segments(chunks: Iterable[bytes | memoryview]) -> Iterator[tuple[bytearray, bool]]:
    """The bytes of `chunks` in segments, and of each whether it is the last; a full one waits until there is more."""
    held = bytearray()
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            if len(held) == SEGMENT:
                yield held, False
                held = bytearray()
            count = min(SEGMENT - len(held), len(view))
            held += view[:count]
            view = view[count:]
    yield held, True


def _opener(header: bytes, key: Key | None, name: str) -> "AESGCM":
    """What opens the segments after this header. Raises WrongKey, and ValueError for no header."""
    if not is_sealed(header) or len(header) < HEADER:
        raise ValueError(f"{name}: found no header of a sealed file")
    found = header[len(MAGIC) : len(MAGIC) + ID].hex()
    if key is None:
        raise WrongKey(f"{name}: found it sealed with key {found}, expected storage.key_file to name that key's file")
    if found != key.id:
        raise WrongKey(f"{name}: found it sealed with key {found}, and storage.key_file holds key {key.id}")
    return _cipher(key, header[len(MAGIC) + ID : -PREFIX], header)


def _open_segment(
    cipher: "AESGCM", header: bytes, number: int, last: bool, segment: bytearray | memoryview, name: str
) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(_nonce(header[-PREFIX:], number, last), segment, header)
    except InvalidTag:
        raise ValueError(f"{name}: segment {number} is not what was sealed") from None


def _cipher(key: Key, salt: bytes, header: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return AESGCM(HKDF(SHA256(), 32, salt, header[: len(MAGIC) + ID]).derive(key.secret))


def _nonce(prefix: bytes, number: int, last: bool) -> bytes:
    """12 bytes: prefix, number, and 1 for the last segment."""
    return prefix + number.to_bytes(4, "big") + bytes([last])
