"""Encryption at rest: a file decrypts with its own key only, and every change of it is found."""

import random
from pathlib import Path

import pytest

from slipway.trainer.checkpoint.disk import encryption
from slipway.trainer.checkpoint.disk.encryption import HEADER, SEGMENT, TAG, Key, WrongKey
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint

pytestmark = pytest.mark.pure

KEY, OTHER = Key(bytes(range(32))), Key(bytes(32))
LENGTHS = (0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT, 3 * SEGMENT + 17)


def encrypted(data: bytes, key: Key = KEY) -> bytes:
    return b"".join(encryption.encrypt([data], key))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where an encrypted file is written."""
    return tmp_path / "model"


def decrypted(path: Path, data: bytes, count: int, key: Key | None = KEY) -> bytes:
    """The first `count` bytes of an encrypted file of these bytes."""
    path.write_bytes(data)
    return bytes(encryption.read(path, 0, count, key))


@pytest.mark.parametrize("length", LENGTHS)
def test_an_encrypted_file_decrypts_to_its_content_and_its_size_follows_from_the_length(path: Path, length: int):
    data = random.Random(length).randbytes(length)
    assert decrypted(path, encrypted(data), length) == data
    segments = max(1, -(-length // SEGMENT))
    assert len(encrypted(data)) == HEADER + length + segments * TAG


def test_the_sizes_of_the_chunks_make_no_difference(path: Path):
    data = random.Random(1).randbytes(2 * SEGMENT + 5)
    pieces: list[bytes | memoryview] = [data[:3], data[3 : SEGMENT + 9], b"", memoryview(data)[SEGMENT + 9 :]]
    assert decrypted(path, b"".join(encryption.encrypt(pieces, KEY)), len(data)) == data


def test_the_content_is_not_visible_and_equal_contents_encrypt_differently():
    data = b"attack at dawn; " * 4096
    first, second = encrypted(data), encrypted(data)
    assert first != second
    assert b"attack" not in first


def test_every_flipped_bit_is_found(path: Path):
    data = random.Random(2).randbytes(SEGMENT + 100)
    ciphertext = encrypted(data)
    chance = random.Random(3)
    positions = [*range(HEADER), *(chance.randrange(HEADER, len(ciphertext)) for _ in range(20))]
    for position in positions:
        damaged = bytearray(ciphertext)
        damaged[position] ^= 1 << chance.randrange(8)
        with pytest.raises(ValueError, match="model: "):
            decrypted(path, bytes(damaged), len(data))


@pytest.mark.parametrize("length", [HEADER - 1, HEADER, HEADER + SEGMENT + TAG, HEADER + 2 * (SEGMENT + TAG) - 1])
def test_a_truncated_file_does_not_decrypt(path: Path, length: int):
    data = random.Random(4).randbytes(2 * SEGMENT + 100)
    with pytest.raises((ValueError, DamagedCheckpoint), match="model: "):
        decrypted(path, encrypted(data)[:length], len(data))


def test_a_segment_from_another_place_or_file_is_refused(path: Path):
    data = random.Random(5).randbytes(2 * SEGMENT + 100)
    ciphertext, other = encrypted(data), encrypted(data)
    first, second = slice(HEADER, HEADER + SEGMENT + TAG), slice(HEADER + SEGMENT + TAG, HEADER + 2 * (SEGMENT + TAG))
    swapped = ciphertext[:HEADER] + ciphertext[second] + ciphertext[first] + ciphertext[second.stop :]
    borrowed = ciphertext[:HEADER] + other[first] + ciphertext[first.stop :]
    for forged in (swapped, borrowed):
        with pytest.raises(ValueError, match="segment 0 is not the one that was encrypted"):
            decrypted(path, forged, len(data))


def test_another_key_is_reported_as_another_key_and_not_as_damage(path: Path):
    with pytest.raises(WrongKey, match=f"model: encrypted with key {KEY.id}, and .* holds key {OTHER.id}"):
        decrypted(path, encrypted(b"weights"), 7, OTHER)
    with pytest.raises(WrongKey, match=f"encrypted with key {KEY.id}, and storage.key_file is not set"):
        decrypted(path, encrypted(b"weights"), 7, None)


def test_a_key_is_read_from_a_file_of_64_hex_digits(path: Path):
    path.write_text(KEY.secret.hex().upper() + "\n")
    assert encryption.read_key(path) == KEY


@pytest.mark.parametrize("content", ["", "0" * 63, "g" * 64, "0" * 65])
def test_a_bad_key_file_is_named_and_its_content_is_not_shown(path: Path, content: str):
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"storage.key_file: {path}: found {len(content)} bytes, expected 64 hex"):
        encryption.read_key(path)


def test_a_key_that_was_replaced_opens_files_and_encrypts_none(path: Path, tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text(f"{OTHER.secret.hex()}\n{KEY.secret.hex()}\n")
    both = encryption.read_key(keys)
    assert decrypted(path, encrypted(b"before"), 6, both) == b"before"
    assert decrypted(path, encrypted(b"after", both), 5, OTHER) == b"after"
    with pytest.raises(WrongKey, match=f"holds key {OTHER.id} and {KEY.id}"):
        decrypted(path, encrypted(b"other", Key(b"x" * 32)), 5, both)


def test_a_bad_line_of_a_key_file_is_named_by_its_number(tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY.secret.hex()}\nnot-a-key\n")
    with pytest.raises(ValueError, match="keys: key 2: found 9 bytes, expected 64 hex digits") as refused:
        encryption.read_key(keys)
    assert "not-a-key" not in str(refused.value)


def test_a_key_file_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=rf"storage.key_file: {tmp_path}/key: cannot be read: No such file"):
        encryption.read_key(tmp_path / "key")


def test_the_printed_form_of_a_key_does_not_show_its_secret():
    assert KEY.secret.hex() not in repr(KEY) and str(KEY.secret) not in repr(KEY)


@pytest.mark.parametrize("begin", [0, 5, SEGMENT - 3, SEGMENT, 2 * SEGMENT + 1])
@pytest.mark.parametrize("count", [0, 1, 7, SEGMENT, SEGMENT + 99])
def test_a_part_of_a_file_is_read_without_the_rest(path: Path, begin: int, count: int):
    data = random.Random(6).randbytes(4 * SEGMENT + 200)
    path.write_bytes(encrypted(data))
    assert encryption.read(path, begin, count, KEY) == data[begin : begin + count]
