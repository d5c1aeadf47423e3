"""Tokenizer: byte-level BPE, trained with `tokenizers`, applied with `tiktoken`.

Two libraries serve one tokenizer: only `tokenizers` trains, and `tiktoken` encodes about seven times faster with the
same merges. The file is the JSON of `tokenizers`, so that other tools can read it, named by its SHA-256.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tiktoken
import tokenizers
from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers.decoders import ByteLevel

from assets.datasets.documents import document_table
from assets.datasets.documents.extracts import segment_path
from assets.datasets.texts import segments
from trainer.base import atomic, digest
from trainer.data import vocabulary
from trainer.data.shards import TokenizerRecord

VERSION = "1"
"""The version of this code, raised when the same texts would give another tokenizer."""

PIECES = r"'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""Merges stay inside these pieces: GPT-4's pattern, which keeps indentation together and numbers short."""

GPT2_PIECES = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The pattern of `tokenizers`' ByteLevel (Radford et al. 2019)."""
PROBE = "It's 12345 km;\n\tnaïve façade — 数据 λ 🙂\r\n  return  x_1 \u200d\x00"

SAMPLE = """
    WITH ordered AS (
        SELECT name, blake3, bytes, sum(bytes) OVER (ORDER BY right(blake3, 16)) AS so_far
        FROM read_parquet($table) WHERE split = 'train'
    )
    SELECT e.segment, list(o.blake3) FROM ordered o JOIN read_parquet($index) e ON e.name = o.name
    WHERE o.so_far - o.bytes < $bytes GROUP BY e.segment ORDER BY e.segment
"""


def path(durable: Path, sha256: str) -> Path:
    return durable / "tokenizers" / f"{sha256}.json"


def train(texts: Iterable[str], vocab_size: int) -> bytes:
    """Train on `texts`; returns the tokenizer's JSON, the same for the same texts in any order.

    `vocab_size` counts the 256 bytes, the merges and, with the highest id, the end-of-document token; a small
    corpus gives fewer merges. Raises ValueError for a `vocab_size` without room for the bytes.
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
    tokenizer.add_special_tokens([vocabulary.END_OF_DOCUMENT])
    return tokenizer.to_str().encode()


def write(durable: Path, data: bytes, scratch: Path | None = None) -> TokenizerRecord:
    """Put a trained tokenizer into the durable tier and describe it."""
    described = describe(data)
    target = path(durable, described.sha256)
    if not atomic.create_only(target, data, scratch) and target.read_bytes() != data:
        atomic.replace(target, data, scratch)
    return described


def describe(data: bytes) -> TokenizerRecord:
    """The record of a tokenizer, as it is in a snapshot's manifest."""
    value = json.loads(data)
    end = vocabulary.end_of_document(value)
    return TokenizerRecord(digest.sha256(data), vocab_size=vocabulary.size(value), end_of_document=end["id"])


def existing(file: Path) -> bytes:
    """The JSON of a tokenizer that was trained elsewhere.

    Raises ValueError, naming the file, when it is missing, is not a byte-level BPE, has no token that ends a document,
    or gives other tokens with `tiktoken` than with `tokenizers`.
    """
    try:
        data = file.read_bytes()
        tokenizer = tokenizers.Tokenizer.from_buffer(data)
        mine, theirs = encoding(data).encode_ordinary(PROBE), tokenizer.encode(PROBE, add_special_tokens=False).ids
        describe(data)
    except FileNotFoundError:
        raise ValueError(f"tokenizer.file: found nothing at {file}, expected the JSON of a tokenizer") from None
    except Exception as error:  # the library raises plain Exceptions
        raise ValueError(f"tokenizer.file: {file}: {error}; expected a byte-level BPE in JSON") from error
    if mine != theirs:
        raise ValueError(f"tokenizer.file: {file}: tiktoken encodes otherwise with it: not a byte-level BPE as known")
    return data


def sample(table: Path, index: Path, megabytes: float, durable: Path, shop: Path) -> Iterator[str]:
    """Texts of the train split, at most `megabytes` of them: those whose hashes have the lowest ends, in no order.

    `shop` is the dataset's workshop.
    """
    with document_table.connect(shop) as connection:
        chosen = connection.execute(
            SAMPLE, {"table": str(table), "index": str(index), "bytes": megabytes * 1e6}
        ).fetchall()
    for segment, hashes in chosen:
        for _, text in segments.texts(segment_path(durable, segment), frozenset(hashes)):
            yield text


def read(durable: Path, sha256: str) -> bytes:
    """The JSON of a stored tokenizer. Raises ValueError when it is missing or damaged."""
    source = path(durable, sha256)
    try:
        data = source.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{source}: found no tokenizer there; build the dataset again") from None
    if digest.sha256(data) != sha256:
        raise ValueError(f"{source}: damaged: its SHA-256 is {digest.sha256(data)}")
    return data


def load(durable: Path, sha256: str) -> tiktoken.Encoding:
    """The encoder of a stored tokenizer, with the same ids as `tokenizers`. Raises ValueError as `read` does."""
    return encoding(read(durable, sha256))


def encoding(data: bytes) -> tiktoken.Encoding:
    """The encoder of a tokenizer's JSON: the ranks of tiktoken are the vocabulary in the order of its merges.

    Raises KeyError, TypeError or ValueError for JSON that is not a byte-level BPE.
    """
    value, byte_of = json.loads(data), _bytes_by_letter()
    added = {token["content"]: token["id"] for token in value["added_tokens"]}
    ranks = {
        bytes(byte_of[letter] for letter in token): rank
        for token, rank in value["model"]["vocab"].items()
        if token not in added
    }
    return tiktoken.Encoding(digest.sha256(data), pat_str=_pattern(value), mergeable_ranks=ranks, special_tokens=added)


def _pattern(value: dict[str, Any]) -> str:
    """The pattern by which a tokenizer's JSON splits text before it merges; GPT-2's when the JSON names none."""
    step = value["pre_tokenizer"]
    steps = step["pretokenizers"] if step["type"] == "Sequence" else [step]
    if [each["type"] for each in steps] == ["Split", "ByteLevel"]:
        return str(steps[0]["pattern"]["Regex"])
    if [each["type"] for each in steps] == ["ByteLevel"] and steps[0]["use_regex"]:
        return GPT2_PIECES
    raise ValueError(f"its pre-tokenizer is {' then '.join(each['type'] for each in steps)}")


def _bytes_by_letter() -> dict[str, int]:
    """The byte of each letter of a byte-level vocabulary (Radford et al. 2019, GPT-2's code).

    Printable bytes have their own letter; the others have the letters from U+0100 on, in their order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
