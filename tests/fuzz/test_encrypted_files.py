"""Fuzzing of a checkpoint's encrypted files: whatever became of their bytes, what is read is what was encrypted.

As in `test_readers.py`; here an error must be of the file, and a value that differs is worse than any error.
"""

from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipway.trainer.checkpoint.disk import encryption
from slipway.trainer.checkpoint.disk.encryption import HEADER, TAG, Key, WrongKey
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint

MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
KEY = Key(b"1" * 32)
SEGMENT = 16
"""So short that a few bytes are several segments, the last one shorter."""
PLAIN = bytes(range(3 * SEGMENT + 5))


@pytest.fixture(scope="module", autouse=True)
def short_segments():
    with mock.patch.object(encryption, "SEGMENT", SEGMENT):
        yield


@pytest.fixture(scope="module")
def encrypted() -> bytes:
    return b"".join(encryption.encrypt([PLAIN], KEY))


POSITIONS = st.integers(0, HEADER + 4 * (SEGMENT + TAG))
CHANGES = st.one_of(
    st.tuples(st.just("turn"), POSITIONS, st.integers(1, 255)),
    st.tuples(st.just("cut"), POSITIONS, POSITIONS),
    st.tuples(st.just("repeat"), POSITIONS, POSITIONS),
    st.tuples(st.just("end"), POSITIONS, st.just(0)),
    st.tuples(st.just("more"), POSITIONS, st.integers(0, 255)),
)


def changed(data: bytes, change: tuple[str, int, int]) -> bytes:
    kind, at, by = change
    if kind == "turn" and at < len(data):
        return data[:at] + bytes([data[at] ^ by]) + data[at + 1 :]
    if kind == "cut":
        return data[: min(at, by)] + data[max(at, by) :]
    if kind == "repeat":
        return data[: max(at, by)] + data[min(at, by) :]
    return data[:at] if kind == "end" else data + bytes([by]) * (at % 40)


def reads_as_it_was_or_says_what_is_wrong(path: Path, begin: int, count: int) -> None:
    try:
        content = encryption.read(path, begin, count, KEY)
    except (WrongKey, DamagedCheckpoint, ValueError) as error:
        assert str(error).startswith(str(path))
    else:
        assert content == PLAIN[begin : begin + count]


@MANY
@given(st.lists(CHANGES, min_size=1, max_size=3), st.integers(0, len(PLAIN)), st.integers(0, len(PLAIN)))
def test_a_file_whose_bytes_were_changed_gives_what_was_encrypted_or_its_clear_error(
    tmp_path: Path, encrypted: bytes, changes: list[tuple[str, int, int]], begin: int, count: int
):
    for change in changes:
        encrypted = changed(encrypted, change)
    (tmp_path / "model").write_bytes(encrypted)
    reads_as_it_was_or_says_what_is_wrong(tmp_path / "model", begin, min(count, len(PLAIN) - begin))


@MANY
@given(st.binary(max_size=200), st.booleans())
def test_bytes_of_others_open_nothing(tmp_path: Path, data: bytes, seems_ours: bool):
    (tmp_path / "model").write_bytes((encryption.MAGIC + bytes.fromhex(KEY.id) if seems_ours else b"") + data)
    with pytest.raises((WrongKey, DamagedCheckpoint, ValueError), match=str(tmp_path / "model")):
        encryption.read(tmp_path / "model", 0, 1, KEY)


@pytest.mark.parametrize("length", range(0, HEADER + 4 * (SEGMENT + TAG), 7))
def test_a_file_that_was_cut_off_anywhere_does_not_give_its_later_bytes(tmp_path: Path, encrypted: bytes, length: int):
    (tmp_path / "model").write_bytes(encrypted[: min(length, len(encrypted) - 1)])
    with pytest.raises((DamagedCheckpoint, ValueError), match=str(tmp_path / "model")):
        encryption.read(tmp_path / "model", len(PLAIN) - 1, 1, KEY)
