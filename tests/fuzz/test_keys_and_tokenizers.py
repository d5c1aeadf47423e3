"""Fuzzing of the wrapped keys of checkpoints, and of tokenizers of others: a value, or an error that says where.

As in `test_readers.py`. What is damaged is a record or a file that was whole, so that the damage is deep inside too.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipway.assets.datasets.texts import sentence_pieces, tokenizer
from slipway.trainer.checkpoint.disk import encryption, resealing
from slipway.trainer.checkpoint.disk.encryption import HEADER, Key, WrongKey
from slipway.trainer.checkpoint.disk.resealing import RECORD, WrappedKeys
from tests.fuzz.test_readers import VALUES, as_bytes, bytes_like, damaged, gives_or_refuses

FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
OLD, NEW = Key(b"1" * 32), Key(b"2" * 32)
FILE, PLAIN = "model-0", b"weights" * 4
ENCRYPTED = b"".join(encryption.encrypt([PLAIN], OLD))
WRAPPED = resealing.wrapped(
    NEW.secret, encryption.file_key(ENCRYPTED[:HEADER], OLD, FILE, lambda: None, FILE), ENCRYPTED[:HEADER]
)
RECORDED = {"format": resealing.FORMAT, "key": NEW.id, "files": {FILE: WRAPPED}}
TOKENIZER = json.loads(tokenizer.train(["some words and some more words"], 270))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / FILE).write_bytes(ENCRYPTED)
    return folder


def opened(checkpoint: Path, record: bytes) -> bytes:
    """The file by the new key alone, as the record beside it says."""
    (checkpoint / RECORD).write_bytes(record)
    return bytes(encryption.read(checkpoint / FILE, 0, len(PLAIN), NEW))


def test_a_record_that_is_whole_opens_the_file(checkpoint: Path):
    assert opened(checkpoint, resealing.encode(WrappedKeys(NEW.id, {FILE: WRAPPED}))) == PLAIN


@pytest.mark.nightly
@FEW
@given(bytes_like(RECORDED))
def test_a_damaged_record_of_keys_opens_nothing_wrong_and_is_named(checkpoint: Path, record: bytes):
    try:
        assert opened(checkpoint, record) == PLAIN
    except WrongKey as error:
        assert str(checkpoint / FILE) in str(error)
    except ValueError as error:
        assert RECORD in str(error)


@FEW
@given(st.integers(0, len(WRAPPED) // 2 - 1), st.integers(1, 255))
def test_no_bit_of_a_wrapped_key_can_be_turned(checkpoint: Path, at: int, by: int):
    turned = bytearray.fromhex(WRAPPED)
    turned[at] ^= by
    with pytest.raises(ValueError, match=f"{RECORD}: the key of {FILE} is not the one that was wrapped"):
        opened(checkpoint, resealing.encode(WrappedKeys(NEW.id, {FILE: turned.hex()})))


@pytest.mark.parametrize("text", ["", "0", "zz", "00" * 12, "é", "00" * 2000])
def test_a_wrapped_key_of_another_length_is_refused(checkpoint: Path, text: str):
    with pytest.raises(ValueError, match=RECORD):
        opened(checkpoint, resealing.encode(WrappedKeys(NEW.id, {FILE: text})))


@pytest.mark.parametrize("part", ["decoder", "post_processor", "pre_tokenizer", "model", "added_tokens"])
def test_a_tokenizer_with_a_part_that_is_none_is_refused_with_its_file(tmp_path: Path, part: str):
    file = tmp_path / "tokenizer.json"
    file.write_bytes(as_bytes({**TOKENIZER, part: [{"content": "</s>", "id": 1, "special": True}]}))
    with pytest.raises(ValueError, match=re.escape(str(file))):
        tokenizer.existing(file)


@pytest.mark.parametrize("field", [b"\x08\x01", b"\x1a\x02\x08\x01", b"\x0a\x02\x08\x01"])
def test_a_number_in_the_place_of_a_text_is_no_model_of_pieces(field: bytes):
    with pytest.raises(ValueError, match=r"not a SentencePiece model|a SentencePiece model whose"):
        sentence_pieces.converted(field)


def existing(folder: Path, data: bytes) -> None:
    """Read a tokenizer that a recipe names."""
    file = folder / "tokenizer.json"
    file.write_bytes(data)
    try:
        tokenizer.describe(tokenizer.existing(file, ["some words"]))
    except ValueError as error:
        assert str(file) in str(error)


@pytest.mark.nightly
@FEW
@given(damaged(TOKENIZER) | VALUES)
def test_a_tokenizer_of_others_is_read_or_refused_with_its_file(tmp_path: Path, value: object):
    existing(tmp_path, as_bytes(value))


@pytest.mark.nightly
@FEW
@given(damaged(TOKENIZER["added_tokens"]) | VALUES)
def test_added_tokens_of_others_are_read_or_refused_with_their_file(tmp_path: Path, value: object):
    existing(tmp_path, as_bytes({**TOKENIZER, "added_tokens": value}))


def piece(text: bytes, score: bytes, kind: int) -> bytes:
    """A piece of a SentencePiece model, as protobuf writes it."""
    return b"\x0a" + bytes([len(text)]) + text + b"\x15" + score + b"\x18" + bytes([kind])


PIECES = st.lists(
    st.builds(piece, st.binary(max_size=9), st.binary(min_size=4, max_size=4), st.integers(0, 9)), max_size=6
)
MODELS = PIECES.map(
    lambda pieces: b"".join(b"\x0a" + bytes([len(piece_bytes)]) + piece_bytes for piece_bytes in pieces)
)


@pytest.mark.nightly
@FEW
@given(MODELS | st.binary(max_size=64))
def test_pieces_of_others_are_a_tokenizer_or_refused(data: bytes):
    gives_or_refuses(lambda: sentence_pieces.converted(data))


def truncated(data: bytes) -> Iterator[bytes]:
    return (data[:end] for end in range(len(data)))


def test_a_model_of_pieces_that_breaks_off_is_refused_and_read_in_no_more_bytes_than_it_has():
    model = b"\x0a\x0f" + piece(b"<unk>", bytes(4), 2)[:15]
    for data in (*truncated(model), b"\x0a" + b"\xff" * 9 + b"\x01", b"\xff" * 64):
        gives_or_refuses(lambda data=data: sentence_pieces.converted(data))  # type: ignore[misc]
