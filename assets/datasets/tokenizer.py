"""Tokenizer: byte-level BPE, trained with `tokenizers`, applied with `tiktoken`.

Two libraries for one tokenizer: only the first trains, and the second encodes about seven times faster with
the same merges. The file is the first one's own JSON, so that other tools read it, named by its SHA-256.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import tiktoken
import tokenizers
from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers.decoders import ByteLevel

from trainer import atomic, digest
from trainer.shards import Tokenizer

VERSION = "1"
"""Of the code below: raised when the same texts would give another tokenizer."""

END_OF_DOCUMENT = "<|endofdocument|>"

PIECES = r"'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""Merges stay inside these pieces: GPT-4's pattern, which keeps indentation together and numbers short."""


def path(durable: Path, sha256: str) -> Path:
    return durable / "tokenizers" / f"{sha256}.json"


def train(texts: Iterable[str], vocab_size: int) -> bytes:
    """Train on `texts`; returns the tokenizer's JSON, the same for the same texts in any order.

    `vocab_size` counts the 256 bytes, the merges and, with the highest id, the end-of-document token; a corpus
    too small for so many merges gives fewer. Raises ValueError when it has no room for the bytes.
    """
    if vocab_size < 257:
        raise ValueError(f"tokenizer.vocab_size: found {vocab_size}, expected at least 257: every byte has a token")
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([END_OF_DOCUMENT])
    return tokenizer.to_str().encode()


def write(durable: Path, data: bytes) -> Tokenizer:
    """Put a trained tokenizer into the durable tier and describe it."""
    described = describe(data)
    target = path(durable, described.sha256)
    if not atomic.create_only(target, data) and target.read_bytes() != data:
        atomic.replace(target, data)
    return described


def describe(data: bytes) -> Tokenizer:
    """A tokenizer as a snapshot's manifest names it."""
    ranks = json.loads(data)["model"]["vocab"]
    return Tokenizer(sha256=digest.sha256(data), vocab_size=len(ranks) + 1, end_of_document=len(ranks))


def read(durable: Path, sha256: str) -> bytes:
    """The JSON of a stored tokenizer. Raises ValueError when it is missing or damaged."""
    source = path(durable, sha256)
    try:
        data = source.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{source}: there is no such tokenizer") from None
    if digest.sha256(data) != sha256:
        raise ValueError(f"{source}: damaged: its SHA-256 is {digest.sha256(data)}")
    return data


def load(durable: Path, sha256: str) -> tiktoken.Encoding:
    """The encoder of a stored tokenizer: the same ids as `tokenizers` gives. Raises ValueError as `read` does."""
    return encoding(read(durable, sha256))


def encoding(data: bytes) -> tiktoken.Encoding:
    """The encoder of a tokenizer's JSON. A vocabulary in the order of its merges is tiktoken's ranks."""
    vocabulary = json.loads(data)["model"]["vocab"]
    byte_of = _bytes_by_letter()
    ranks = {bytes(byte_of[letter] for letter in token): rank for token, rank in vocabulary.items()}
    special = {END_OF_DOCUMENT: len(ranks)}
    return tiktoken.Encoding(digest.sha256(data), pat_str=PIECES, mergeable_ranks=ranks, special_tokens=special)


def _bytes_by_letter() -> dict[str, int]:
    """The byte that each letter of a byte-level vocabulary stands for (Radford et al. 2019, GPT-2's code).

    Printable bytes stand for themselves; the others take the letters from U+0100 on, in their order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
