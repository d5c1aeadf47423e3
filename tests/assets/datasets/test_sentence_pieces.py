"""SentencePiece models are converted to tokenizers that give the same tokens, or refused with the reason.

`sentence_pieces/small.model` was trained by sentencepiece 0.2.3 on the topics of pydoc: BPE of 700 pieces,
byte_fallback, identity, remove_extra_whitespaces false. `tokens.json` has what that library itself encodes texts to.
"""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.texts import encoders, sentence_pieces, tokenizer
from slipway.trainer.base import parsing

CASES = Path(__file__).parent / "sentence_pieces"
MODEL = (CASES / "small.model").read_bytes()


@pytest.fixture(scope="module")
def encoder() -> encoders.TextEncoding:
    return tokenizer.encoding(sentence_pieces.converted(MODEL))


def test_the_tokens_are_those_of_the_library(encoder: encoders.TextEncoding):
    for text, tokens in json.loads((CASES / "tokens.json").read_text()):
        assert encoder.encode_ordinary(text) == tokens


@given(text=st.text(alphabet=st.characters(codec="utf-8", exclude_characters=sentence_pieces.SPACE)))
def test_any_text_is_decoded_from_its_tokens(encoder: encoders.TextEncoding, text: str):
    assert encoder.decode(encoder.encode_ordinary(text)) == text


def test_a_model_is_a_tokenizer_file_as_its_json_is(tmp_path: Path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(MODEL)
    data = tokenizer.existing(path, ["a text of the corpus"])
    described = tokenizer.describe(data)
    assert (described.vocab_size, described.end_of_document) == (700, 2)
    assert "its normaliser" in (encoders.why_exact(parsing.value(data)) or "")


def message(number: int, *parts: bytes) -> bytes:
    """A field of a protocol buffer that holds a message."""
    body = b"".join(parts)
    size = len(body)
    assert size < 128 * 128
    return bytes([number << 3 | 2, size & 0x7F | 0x80, size >> 7]) + body


def model(kind: int = 2, normalizer: str = "identity", single_spaces: int = 0, bytes_: bool = True) -> bytes:
    """A model of one piece beside the bytes."""
    texts = ["a", *sorted(sentence_pieces.BYTES if bytes_ else [])]
    pieces = [
        message(1, message(1, text.encode()), b"\x15", struct.pack("<f", -1), bytes([0x18, 6 if number else 1]))
        for number, text in enumerate(texts)
    ]
    return b"".join(pieces) + message(2, bytes([0x18, kind])) + message(
        3, message(1, normalizer.encode()), bytes([0x20, single_spaces])
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (model(kind=1), "type is unigram, expected BPE"),
        (model(normalizer="nmt_nfkc"), "normaliser nmt_nfkc changes the text, expected identity"),
        (model(single_spaces=1), "removes white space, expected remove_extra_whitespaces=false"),
        (model(bytes_=False), "no token for each byte, expected byte_fallback=true"),
        (MODEL[:5000], "not a SentencePiece model: it ends within a field"),
    ],
)
def test_a_model_that_would_lose_text_is_refused_with_what_is_wrong(tmp_path: Path, data: bytes, reason: str):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"tokenizer.file: {path}: .*{reason}"):
        tokenizer.existing(path)


def test_a_model_as_small_as_it_may_be_is_read(tmp_path: Path):
    pieces_model = sentence_pieces.read(model())
    assert (pieces_model.kind, pieces_model.normalizer, pieces_model.space_before, len(pieces_model.pieces)) == (
        "BPE",
        "identity",
        True,
        257,
    )
