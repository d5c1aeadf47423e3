"""Encryption at rest (C7): what is sealed opens with its key alone, and nothing of it changes unseen."""

import random
from pathlib import Path

import pytest

from trainer.checkpoint import sealing
from trainer.checkpoint.sealing import HEADER, SEGMENT, TAG, Key, WrongKey

KEY, OTHER = Key(bytes(range(32))), Key(bytes(32))
LENGTHS = (0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT, 3 * SEGMENT + 17)


def sealed(data: bytes, key: Key = KEY) -> bytes:
    return b"".join(sealing.seal([data], key))


@pytest.mark.parametrize("length", LENGTHS)
def test_what_is_sealed_opens_again_and_its_size_is_known_before(length: int):
    data = random.Random(length).randbytes(length)
    assert sealing.opened(sealed(data), KEY, "model") == data
    segments = max(1, -(-length // sealing.SEGMENT))
    assert len(sealed(data)) == sealing.HEADER + length + segments * sealing.TAG


def test_how_the_bytes_come_in_makes_no_difference():
    data = random.Random(1).randbytes(2 * SEGMENT + 5)
    pieces: list[bytes | memoryview] = [data[:3], data[3 : SEGMENT + 9], b"", memoryview(data)[SEGMENT + 9 :]]
    assert sealing.opened(b"".join(sealing.seal(pieces, KEY)), KEY, "model") == data


def test_nothing_of_the_content_shows_and_equal_contents_look_different():
    data = b"attack at dawn; " * 4096
    first, second = sealed(data), sealed(data)
    assert first != second
    assert b"attack" not in first


def test_no_flipped_bit_goes_unseen():
    whole = sealed(random.Random(2).randbytes(SEGMENT + 100))
    chance = random.Random(3)
    places = [*range(HEADER), *(chance.randrange(HEADER, len(whole)) for _ in range(20))]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        with pytest.raises(ValueError, match="model: "):
            sealing.opened(bytes(damaged), KEY, "model")


@pytest.mark.parametrize("kept", [HEADER - 1, HEADER, HEADER + SEGMENT + TAG, HEADER + 2 * (SEGMENT + TAG) - 1])
def test_a_file_that_was_cut_off_does_not_open(kept: int):
    whole = sealed(random.Random(4).randbytes(2 * SEGMENT + 100))
    with pytest.raises(ValueError, match="model: "):
        sealing.opened(whole[:kept], KEY, "model")


def test_segments_can_not_change_places_or_files():
    data = random.Random(5).randbytes(2 * SEGMENT + 100)
    whole, other = sealed(data), sealed(data)
    first, second = slice(HEADER, HEADER + SEGMENT + TAG), slice(HEADER + SEGMENT + TAG, HEADER + 2 * (SEGMENT + TAG))
    swapped = whole[:HEADER] + whole[second] + whole[first] + whole[second.stop :]
    borrowed = whole[:HEADER] + other[first] + whole[first.stop :]
    for forged in (swapped, borrowed):
        with pytest.raises(ValueError, match="segment 0 is not what was sealed"):
            sealing.opened(forged, KEY, "model")


def test_another_key_is_said_to_be_another_key_and_never_damage():
    with pytest.raises(WrongKey, match=f"model: found it sealed with key {KEY.id}, and .* holds key {OTHER.id}"):
        sealing.opened(sealed(b"weights"), OTHER, "model")
    with pytest.raises(WrongKey, match=f"sealed with key {KEY.id}, expected storage.key_file"):
        sealing.opened(sealed(b"weights"), None, "model")


def test_a_key_is_read_from_a_file_of_64_hex_digits(tmp_path: Path):
    path = tmp_path / "key"
    path.write_text(KEY.secret.hex().upper() + "\n")
    assert sealing.read_key(path) == KEY


@pytest.mark.parametrize("held", ["", "0" * 63, "g" * 64, "0" * 65])
def test_a_bad_key_file_is_named_and_what_it_holds_is_not_told(tmp_path: Path, held: str):
    path = tmp_path / "key"
    path.write_text(held)
    with pytest.raises(ValueError, match=rf"storage.key_file: {path}: found {len(held)} bytes, expected 64 hex"):
        sealing.read_key(path)


def test_a_key_file_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=rf"storage.key_file: {tmp_path}/key: cannot be read: No such file"):
        sealing.read_key(tmp_path / "key")


def test_a_key_does_not_show_in_what_python_prints_of_it():
    assert KEY.secret.hex() not in repr(KEY) and str(KEY.secret) not in repr(KEY)


@pytest.mark.parametrize("begin", [0, 5, SEGMENT - 3, SEGMENT, 2 * SEGMENT + 1])
@pytest.mark.parametrize("count", [0, 1, 7, SEGMENT, SEGMENT + 99])
def test_a_part_of_a_file_is_read_without_the_rest(tmp_path: Path, begin: int, count: int):
    data = random.Random(6).randbytes(4 * SEGMENT + 200)
    (tmp_path / "model").write_bytes(sealed(data))
    assert sealing.read(tmp_path / "model", begin, count, KEY) == data[begin : begin + count]
