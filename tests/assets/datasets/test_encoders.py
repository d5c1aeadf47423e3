"""Encoders: an existing tokenizer gives the tokens that its file means, and one that loses text is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from slipway.assets.datasets.texts import encoders, tokenizer

TEXTS = [path.read_text() for path in sorted(Path(tokenizer.__file__).parent.glob("*.py"))]
TEXT = "the tokens of the text\n    return <tool> in the end — naïve <|endofdocument|> 数据\n"


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(tokenizer.train(TEXTS, 700))
    return value


def as_it_is(value: dict[str, Any]) -> None:
    pass


def composing(value: dict[str, Any]) -> None:
    value["normalizer"] = {"type": "NFC"}


def with_a_word_of_its_own(value: dict[str, Any]) -> None:
    token = {"id": 700, "content": "<tool>", "special": False}
    value["added_tokens"].append({**value["added_tokens"][0], **token})


def with_ids_in_another_order(value: dict[str, Any]) -> None:
    """The ids of merges in reverse, which changes no merge."""
    vocab = value["model"]["vocab"]
    merged = ["".join(merge) for merge in value["model"]["merges"]]
    for token, id in zip(merged, sorted((vocab[token] for token in merged), reverse=True), strict=True):
        vocab[token] = id


def with_a_space_before(value: dict[str, Any]) -> None:
    value["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = True


def in_small_letters(value: dict[str, Any]) -> None:
    value["normalizer"] = {"type": "Lowercase"}


def changed(trained: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> bytes:
    value = json.loads(json.dumps(trained))
    change(value)
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (as_it_is, None),
        (composing, None),
        (with_a_word_of_its_own, "'<tool>'"),
        (with_ids_in_another_order, "order of its merges"),
        (in_small_letters, "normaliser Lowercase"),
        (with_a_space_before, "a space before"),
    ],
)
def test_every_tokenizer_gives_the_tokens_of_its_own_library(trained, change, reason):
    data = changed(trained, change)
    why = encoders.why_exact(json.loads(data))
    assert why is None if reason is None else reason in (why or "")
    library = tokenizers.Tokenizer.from_buffer(data)
    library.encode_special_tokens = True
    encoder = tokenizer.encoding(data)
    for text in (TEXT, *TEXTS):
        expected = library.encode(text, add_special_tokens=False).ids
        assert encoder.encode_ordinary(text) == expected
        assert encoder.encode_to_numpy(text, disallowed_special=()).tolist() == expected


@pytest.mark.parametrize("change", [as_it_is, composing, with_a_word_of_its_own, with_ids_in_another_order])
def test_one_whose_tokens_decode_to_the_text_is_taken(trained, tmp_path, change):
    (tmp_path / "tokenizer.json").write_bytes(changed(trained, change))
    data = tokenizer.existing(tmp_path / "tokenizer.json", TEXTS)
    encoder = tokenizer.encoding(data)
    assert encoder.decode_bytes(encoder.encode_ordinary(TEXT)) == TEXT.encode()


def test_one_that_loses_text_is_refused_with_what_it_loses(trained, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(changed(trained, in_small_letters))
    with pytest.raises(ValueError, match=r"tokenizer.json: its tokens do not decode to the text: \"It's 12.*becomes"):
        tokenizer.existing(tmp_path / "tokenizer.json", TEXTS)


def test_one_that_the_fast_encoder_applies_otherwise_is_refused(trained, tmp_path, monkeypatch):
    """As if a construct of the file were not known here."""
    monkeypatch.setattr(encoders, "why_exact", lambda value: None)
    (tmp_path / "tokenizer.json").write_bytes(changed(trained, with_a_word_of_its_own))
    with pytest.raises(ValueError, match="tiktoken and tokenizers give other tokens of"):
        tokenizer.existing(tmp_path / "tokenizer.json", [TEXT])
