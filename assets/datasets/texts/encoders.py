"""Encoders: the two libraries that apply a tokenizer, and the choice between them.

`tiktoken` supports only the ranks of a byte-level BPE: no normaliser (NFC is applied before it), no token that is taken
from the text before the merges, and no order of merges that differs from the ids. For other tokenizers the library
`tokenizers` itself is used, at a seventh of the speed. The choice is a pure function of the file.
"""

import unicodedata
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tiktoken
import tokenizers

from slipway.trainer.base import digest, parsing

GPT2_PIECES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The pattern of `tokenizers`' ByteLevel (Radford et al. 2019)."""
OF_NO_EFFECT = {"type", "vocab", "merges", "ignore_merges", "unk_token", "fuse_unk"}
"""Fields of a BPE that have no effect if every byte has a token."""


class TextEncoding(Protocol):
    """Encodes texts and decodes tokens."""

    def encode_ordinary(self, text: str) -> list[int]:
        """The tokens of a text; the names of special tokens count as text."""

    def encode_to_numpy(self, text: str, *, disallowed_special: tuple[str, ...]) -> npt.NDArray[np.uint32]:
        """The tokens of a text as an array."""

    def decode(self, tokens: list[int]) -> str: ...

    def decode_bytes(self, tokens: list[int]) -> bytes:
        """The text of the tokens. Raises KeyError for an undefined token."""


class Exact:
    """The library `tokenizers` itself. Raises the library's errors for JSON that is not a tokenizer."""

    def __init__(self, data: bytes) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_buffer(data)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True

    def encode_ordinary(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_to_numpy(self, text: str, *, disallowed_special: tuple[str, ...] = ()) -> npt.NDArray[np.uint32]:
        return np.array(self.encode_ordinary(text), np.uint32)

    def decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))

    def decode_bytes(self, tokens: list[int]) -> bytes:
        if any(self._tokenizer.id_to_token(token) is None for token in set(tokens)):
            raise KeyError("a token that stands for nothing")
        return self.decode(tokens).encode()


class Composed:
    """tiktoken's encoder for tokenizers with Unicode NFC, such as Qwen's. The texts of a dataset are already in NFC."""

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self._encoding = encoding
        self.decode = encoding.decode
        self.decode_bytes = encoding.decode_bytes

    def encode_ordinary(self, text: str) -> list[int]:
        return self._encoding.encode_ordinary(unicodedata.normalize("NFC", text))

    def encode_to_numpy(self, text: str, *, disallowed_special: tuple[str, ...] = ()) -> npt.NDArray[np.uint32]:
        composed = unicodedata.normalize("NFC", text)
        return self._encoding.encode_to_numpy(composed, disallowed_special=disallowed_special)


def why_exact(value: dict[str, Any]) -> str | None:
    """Why a tokenizer, the JSON of `tokenizers`, needs that library to be applied, in words; None if tiktoken gives the
    same tokens. Raises KeyError or TypeError for JSON that is not a BPE."""
    model = value["model"]
    if not _only_composes(value) and value.get("normalizer") is not None:
        return f"its normaliser {value['normalizer']['type']} changes the text"
    taken = [token["content"] for token in value["added_tokens"] if not token["special"]]
    if taken:
        return f"its added token {taken[0]!r} is taken from the text before the merges"
    unusual = [name for name in model if name not in OF_NO_EFFECT and model[name]]
    if model.get("type", "BPE") != "BPE" or unusual:
        return f"its model is {model.get('type', 'BPE')} with {', '.join(unusual) or 'other rules'}"
    merged = [model["vocab"]["".join(_pair(merge))] for merge in model["merges"]]
    if any(first >= second for first, second in pairwise(merged)):
        return "its ids are not in the order of its merges"
    try:
        _pattern(value)
    except ValueError as error:
        return str(error)
    return None


def fast(data: bytes) -> TextEncoding:
    """tiktoken's encoder: its ranks are the vocabulary in the order of the merges.

    Raises KeyError, TypeError or ValueError for JSON that is not a byte-level BPE.
    """
    value = parsing.value(data)
    byte_of = _bytes_by_letter()
    added = {token["content"]: token["id"] for token in value["added_tokens"]}
    ranks = {
        bytes(byte_of[letter] for letter in token): rank
        for token, rank in value["model"]["vocab"].items()
        if token not in added
    }
    name = digest.sha256(data)
    pattern = _pattern(value)
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=added)
    if _only_composes(value):
        return Composed(encoding)
    return encoding


def _only_composes(value: dict[str, Any]) -> bool:
    return value.get("normalizer") == {"type": "NFC"}


def difference(text: str, other: str) -> str:
    """The first difference of two texts, in words."""
    at = next((at for at, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return f"{text[max(at - 10, 0) : at + 20]!r} becomes {other[max(at - 10, 0) : at + 20]!r}"


def _pair(merge: str | list[str]) -> list[str]:
    """A merge as a pair; older files have it as one text."""
    return merge.split(" ") if isinstance(merge, str) else merge


def _pattern(value: dict[str, Any]) -> str:
    """The pattern by which a tokenizer's JSON splits text before merging; GPT-2's if the JSON has none."""
    step = value["pre_tokenizer"] or {"type": "none"}
    steps = step["pretokenizers"] if step["type"] == "Sequence" else [step]
    if any(section.get("add_prefix_space") for section in steps):
        raise ValueError("it puts a space before the text")
    if [section["type"] for section in steps] == ["Split", "ByteLevel"]:
        return str(steps[0]["pattern"]["Regex"])
    if [section["type"] for section in steps] == ["ByteLevel"] and steps[0]["use_regex"]:
        return GPT2_PIECES
    raise ValueError(f"its pre-tokenizer is {' then '.join(section['type'] for section in steps)}")


def _bytes_by_letter() -> dict[str, int]:
    """The byte of each letter of a byte-level vocabulary (Radford et al. 2019, GPT-2's code).

    Printable bytes have their own letter; the others have the letters from U+0100 on, in their order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}
