"""Converts SentencePiece models to the JSON of `tokenizers`, with the same tokens.

A `.model` file is one protocol buffer, `ModelProto` of sentencepiece_model.proto (Kudo and Richardson 2018, arXiv
1808.06226): the pieces with their scores, how the model was trained, and how it normalises. Only a byte-pair encoding
that has a token for every byte and changes no text can be converted, as Llama's, Mistral's and Gemma's: with any other
a text could not be had back from its tokens.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""What SentencePiece writes for a space."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, _UNUSED, BYTE = range(1, 7)
"""The types of pieces."""
KINDS = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
BYTES = {f"<0x{byte:02X}>" for byte in range(256)}


@dataclass(frozen=True)
class SentencePiece:
    """One token of a model; its id is its index."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceModel:
    """The parts of a model's file that decide its tokens."""

    pieces: tuple[SentencePiece, ...]
    kind: str
    normalizer: str
    """`identity` changes no text."""
    has_map: bool
    """Whether characters are replaced before the text is split."""
    space_before: bool
    """Whether a space is put before the text."""
    single_spaces: bool
    """Whether white space at the ends, and all but one of several spaces, are removed."""


def is_model(data: bytes) -> bool:
    """Whether these bytes are a SentencePiece model, which begins with a piece, and not JSON."""
    return data[:1] == b"\x0a"


def converted(data: bytes) -> bytes:
    """The JSON of `tokenizers` for a SentencePiece model. Raises ValueError for one that cannot be converted."""
    try:
        model = read(data)
    except (IndexError, struct.error, UnicodeDecodeError, TypeError, AttributeError) as error:
        raise ValueError(f"not a SentencePiece model: {error}") from None
    reason = _why_not(model)
    if reason:
        raise ValueError(f"a SentencePiece model whose {reason}")
    return json.dumps(_tokenizer(model), ensure_ascii=False, sort_keys=True).encode()


def read(data: bytes) -> SentencePieceModel:
    """Decode a model's file. Raises IndexError, struct.error, TypeError, AttributeError or UnicodeDecodeError for other
    bytes."""
    fields = list(_fields(data))
    trained, normalized = (dict(_fields(_last(fields, number))) for number in (2, 3))
    return SentencePieceModel(
        pieces=tuple(_piece(dict(_fields(value))) for number, value in fields if number == 1),
        kind=KINDS.get(trained.get(3, 1), "unknown"),
        normalizer=normalized.get(1, b"").decode() or "identity",
        has_map=bool(normalized.get(2)),
        space_before=bool(normalized.get(3, 1)),
        single_spaces=bool(normalized.get(4, 1)),
    )


def _piece(fields: Mapping[int, Any]) -> SentencePiece:
    score = struct.unpack("<f", fields[2])[0] if 2 in fields else 0.0
    return SentencePiece(fields.get(1, b"").decode(), score, fields.get(3, NORMAL))


def _last(fields: list[tuple[int, Any]], number: int) -> bytes:
    return next((value for key, value in reversed(fields) if key == number), b"")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer's message: whole numbers, and bytes for everything else."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _varint(data, at)
            case 5:
                size = 4
            case other:
                raise TypeError(f"found a field of wire type {other}")
        if at + size > len(data):
            raise IndexError("it ends within a field")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A whole number in base 128, the lowest digits first; and where the next field begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value = value | (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
        if shift >= 70:  # 64 bits need ten digits, and an endless number would take quadratic time
            raise TypeError("found a whole number of more than ten bytes")


def _why_not(model: SentencePieceModel) -> str:
    """The reason why a model would lose text or is not a byte-pair encoding; empty if it can be converted."""
    if model.kind != "BPE":
        return f"type is {model.kind}, expected BPE"
    if model.normalizer != "identity" or model.has_map:
        return f"normaliser {model.normalizer} changes the text, expected identity"
    if model.single_spaces:
        return "normaliser removes white space, expected remove_extra_whitespaces=false"
    if not {piece.text for piece in model.pieces if piece.kind == BYTE} >= BYTES:
        return "vocabulary has no token for each byte, expected byte_fallback=true"
    return ""


def _tokenizer(model: SentencePieceModel) -> dict[str, Any]:
    spaces: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    before = [{"type": "Prepend", "prepend": SPACE}] if model.space_before else []
    after = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if model.space_before else []
    written = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    unknown = next((piece.text for piece in model.pieces if piece.kind == UNKNOWN), None)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(_added(model)),
        "normalizer": {"type": "Sequence", "normalizers": [*before, *spaces]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [written, {"type": "ByteFallback"}, {"type": "Fuse"}, *after],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {piece.text: index for index, piece in enumerate(model.pieces)},
            "merges": [list(merge) for merge in merges(model)],
        },
    }


def _added(model: SentencePieceModel) -> Iterator[dict[str, Any]]:
    """The tokens that no merge makes: those that control, which no text means, and those that a user defined."""
    for index, piece in enumerate(model.pieces):
        if piece.kind in (UNKNOWN, CONTROL, USER_DEFINED):
            yield {
                "id": index,
                "content": piece.text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": piece.kind == USER_DEFINED,
                "special": piece.kind != USER_DEFINED,
            }


def merges(model: SentencePieceModel) -> list[tuple[str, str]]:
    """The pairs of pieces that make a piece, in the order in which they are merged: the highest score first.

    SentencePiece merges the two neighbours whose piece has the highest score; a pair that comes earlier here is
    merged earlier by `tokenizers`. As `transformers` converts the models of Llama.
    """
    indexes = {piece.text: index for index, piece in enumerate(model.pieces) if piece.kind in (NORMAL, USER_DEFINED)}
    pairs = [
        (-piece.score, indexes[piece.text], indexes[first], indexes[right], (first, right))
        for piece in model.pieces
        if piece.kind == NORMAL
        for first, right in _halves(piece.text)
        if first in indexes and right in indexes
    ]
    return [pair for *_, pair in sorted(pairs)]


def _halves(text: str) -> Iterator[tuple[str, str]]:
    return ((text[:at], text[at:]) for at in range(1, len(text)))
