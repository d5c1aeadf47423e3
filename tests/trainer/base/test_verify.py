"""The verifier: content of another size or hash is refused, with where it lies, what was found and what is expected."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.base import digest, verify
from slipway.trainer.base.progress import BYTE_COUNT
from slipway.trainer.base.verify import Measured, Mismatch

pytestmark = pytest.mark.pure

DATA = bytes(range(256)) * 100
EXPECTED = Measured(len(DATA), digest.of_bytes(DATA))
FLIPPED = bytes([DATA[0] ^ 1]) + DATA[1:]


def blocks(data: bytes) -> Iterator[bytes]:
    return (data[begin : begin + 1000] for begin in range(0, len(data), 1000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(DATA)
    return tmp_path / "file"


def test_a_file_is_measured_and_verified(path: Path) -> None:
    assert verify.measure(path) == EXPECTED
    verify.file(path, EXPECTED)
    assert verify.is_whole(path, EXPECTED)
    assert b"".join(verify.blocks(path, 999)) == DATA


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (FLIPPED, rf"file: found BLAKE3 {digest.of_bytes(FLIPPED)[:16]}\.\.\., expected {EXPECTED.blake3[:16]}"),
        (DATA[:-1], rf"file: found {len(DATA) - 1} bytes, expected {len(DATA)}"),
        (DATA + b"x", rf"file: found {len(DATA) + 1} bytes, expected {len(DATA)}"),
    ],
    ids=["flipped", "short", "long"],
)
def test_a_file_of_other_content_is_refused(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(Mismatch, match=message):
        verify.file(path, EXPECTED)
    assert not verify.is_whole(path, EXPECTED)


def test_a_file_that_is_missing_is_not_whole(tmp_path: Path) -> None:
    assert not verify.is_whole(tmp_path / "none", EXPECTED)


def test_a_hash_that_is_wrong_once_is_taken_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, wrong = os.readv, [True]

    def flip_once(descriptor: int, buffers: list[memoryview]) -> int:
        got = read(descriptor, buffers)
        if wrong and got:
            wrong.pop()
            buffers[0][0] ^= 1
        return got

    monkeypatch.setattr(os, "readv", flip_once)
    verify.file(path, EXPECTED)
    assert wrong == []


def test_blocks_that_pass_are_given_and_judged_at_their_end() -> None:
    assert b"".join(verify.passing(blocks(DATA), EXPECTED, "copy")) == DATA
    stream = verify.passing(blocks(FLIPPED), EXPECTED, "copy")
    assert sum(len(next(stream)) for _ in range(26)) == len(DATA)
    with pytest.raises(Mismatch, match="copy: found BLAKE3"):
        next(stream)


def test_blocks_beyond_the_expected_size_are_not_given() -> None:
    received: list[bytes] = []
    with pytest.raises(Mismatch, match=rf"copy: found {len(DATA) + 400} bytes or more, expected {len(DATA)}"):
        received.extend(verify.passing(blocks(DATA + DATA), EXPECTED, "copy"))
    assert sum(map(len, received)) <= len(DATA)


def test_a_manifest_of_another_sha256_is_refused() -> None:
    verify.check_sha256(DATA, digest.sha256(DATA), "manifest")
    with pytest.raises(Mismatch, match=rf"manifest: found SHA-256 {digest.sha256(FLIPPED)[:16]}"):
        verify.check_sha256(FLIPPED, digest.sha256(DATA), "manifest")


def test_each_block_that_is_hashed_is_progress_of_the_process() -> None:
    before = BYTE_COUNT()
    tally = verify.RunningDigest()
    for _ in tally.passing([b"12345", b"678"]):
        pass
    assert BYTE_COUNT() - before == 8
