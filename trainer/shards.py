"""The formats of token shards and dataset snapshots, read by the trainer and written by the dataset assets.

A shard is one file, named by its BLAKE3: the documents' tokens one after the other, little-endian, padded
with zeros to a multiple of 8 bytes, then `documents + 1` unsigned 64-bit offsets (in tokens) of where each
document begins; the last is the number of tokens. It has no header: the manifest describes it. A snapshot's
manifest is canonical JSON, named by its SHA-256; it names every shard and everything that made them.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer import atomic, digest

FORMAT = "slipway.snapshot/1"
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
OFFSETS = np.dtype("<u8")


@dataclass(frozen=True)
class Shard:
    """One shard as the manifest describes it."""

    blake3: str
    bytes: int
    tokens: int
    documents: int


@dataclass(frozen=True)
class Split:
    """One split of a snapshot. `text_bytes` counts the documents' UTF-8, for bits per byte."""

    documents: int
    tokens: int
    text_bytes: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer a snapshot was made with; its file is named by the SHA-256."""

    sha256: str
    vocab_size: int
    end_of_document: int
    """The token that ends every document."""

    @property
    def dtype(self) -> str:
        """The narrowest of the known types that holds every token."""
        return "uint16" if self.vocab_size <= 2**16 else "uint32"


@dataclass(frozen=True)
class Snapshot:
    """An immutable dataset snapshot. Equal inputs give equal manifests, so there is no date in it."""

    dataset: str
    recipe: str
    """SHA-256 of the part of the recipe that decides the content."""
    source: dict[str, Any]
    """Provenance: kind, digest over names and contents, files, bytes, what it is."""
    documents: dict[str, Any]
    """The documents table: BLAKE3, rows."""
    tokenizer: Tokenizer
    dtype: str
    splits: dict[str, Split]

    def manifest(self) -> bytes:
        """The manifest's bytes; their SHA-256 is the snapshot's name."""
        return atomic.canonical_json({"format": FORMAT, **dataclasses.asdict(self)})

    @property
    def sha256(self) -> str:
        return digest.sha256(self.manifest())

    def shards(self) -> list[Shard]:
        """The shards of all splits, each once."""
        return list({shard.blake3: shard for split in self.splits.values() for shard in split.shards}.values())


def shard_path(tier: Path, shard: Shard) -> Path:
    return tier / "shards" / f"{shard.blake3}.shard"


def manifest_path(tier: Path, sha256: str) -> Path:
    return tier / "snapshots" / f"{sha256}.json"


def encode_shard(documents: Sequence[npt.NDArray[Any]], dtype: str) -> bytes:
    """The bytes of a shard that holds these documents (each a 1-d array of token ids)."""
    lengths = [len(document) for document in documents]
    body = b"".join(np.asarray(document, DTYPES[dtype]).tobytes() for document in documents)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(OFFSETS).tobytes()
    return body + bytes(-len(body) % 8) + offsets


def write_shard(tier: Path, documents: Sequence[npt.NDArray[Any]], dtype: str, scratch: Path | None = None) -> Shard:
    """Write a shard into the tier, unless it is there already and whole, and describe it."""
    data = encode_shard(documents, dtype)
    tokens = sum(len(document) for document in documents)
    shard = Shard(digest.of_bytes(data), len(data), tokens, len(documents))
    path = shard_path(tier, shard)
    if not atomic.create_only(path, data, scratch):
        if digest.of_file(path) == shard.blake3:
            os.utime(path)  # young again, so that no collection of garbage takes it from its new snapshot
        else:
            atomic.replace(path, data, scratch)
    return shard


def write_manifest(tier: Path, snapshot: Snapshot, scratch: Path | None = None) -> str:
    """Write the manifest into the tier; returns its SHA-256."""
    atomic.create_only(manifest_path(tier, snapshot.sha256), snapshot.manifest(), scratch)
    return snapshot.sha256


def read_manifest(tier: Path, sha256: str) -> Snapshot:
    """Read and verify a manifest. Raises ValueError when it is missing, damaged or of another format."""
    path = manifest_path(tier, digest.checked(sha256))
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such snapshot") from None
    return parse_manifest(data, sha256, str(path))


def parse_manifest(data: bytes, sha256: str, where: str) -> Snapshot:
    """The snapshot that a manifest's bytes describe. Raises ValueError, beginning with `where`, as `read_manifest`.

    Digests become file names, so they are checked here: no manifest leads out of its tier.
    """
    if digest.sha256(data) != sha256:
        raise ValueError(f"{where}: damaged: its SHA-256 is {digest.sha256(data)}")
    value = json.loads(data)
    version = value.pop("format", None) if isinstance(value, dict) else None
    if version != FORMAT:
        raise ValueError(f"{where}: format: found {version!r}, expected {FORMAT!r}")
    try:
        splits = {name: _split(split) for name, split in value["splits"].items()}
        digest.checked(value["tokenizer"]["sha256"])
        return Snapshot(**{**value, "tokenizer": Tokenizer(**value["tokenizer"]), "splits": splits})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{where}: not a manifest of format {FORMAT}: {error}") from error


def _split(value: dict[str, Any]) -> Split:
    described = tuple(Shard(**shard) for shard in value["shards"])
    for shard in described:
        digest.checked(shard.blake3)
    return Split(**{**value, "shards": described})


def open_shard(tier: Path, shard: Shard, dtype: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """A shard's tokens and document offsets, memory-mapped and read-only.

    Raises ValueError when the file has not the described size; contents are verified by staging.
    """
    path = shard_path(tier, shard)
    width = DTYPES[dtype].itemsize
    padded = -(-shard.tokens * width // 8) * 8
    expected = padded + 8 * (shard.documents + 1)
    found = path.stat().st_size
    if found != expected or found != shard.bytes:
        raise ValueError(f"{path}: found {found} bytes, expected {shard.bytes}")
    data = np.memmap(path, np.uint8, "r")
    return data[: shard.tokens * width].view(DTYPES[dtype]), data[padded:].view(OFFSETS)


def documents(tier: Path, shard: Shard, dtype: str) -> Iterator[npt.NDArray[Any]]:
    """The tokens of each document of a shard, mapped. Raises ValueError as `open_shard` does."""
    tokens, offsets = open_shard(tier, shard, dtype)
    for begin, end in pairwise(offsets.tolist()):
        yield tokens[begin:end]
