"""The formats of token shards and dataset snapshots, read by the trainer and written by the dataset assets.

This module also has the common parts of all snapshots; `slipway.trainer.data.images` has the other kind, and
`slipway.trainer.data.snapshots` reads the manifest of either kind.

A shard is one file, named by its BLAKE3: the tokens of all documents, little-endian, padded with zeros to a multiple of
8 bytes; then `documents + 1` unsigned 64-bit offsets, in tokens: the begin of each document, and the number of tokens.
It has no header: the manifest describes it. A snapshot's manifest is canonical JSON, named by its SHA-256; it lists
every shard, and all inputs of their production.
"""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import numpy.typing as npt

from slipway.trainer.base import atomic, digest, parsing, paths, regular_file, verify
from slipway.trainer.record.causes import LackingTier

Described = TypeVar("Described")
"""A dataclass of a manifest."""
FORMAT = "slipway.snapshot/1"
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
OFFSETS = np.dtype("<u8")


@dataclass(frozen=True)
class ShardFile:
    """A shard as code sees it that moves or verifies it: its hash and its size."""

    blake3: str
    bytes: int


class SnapshotManifest:
    """The fields that manifests of all kinds of snapshots have; each kind is a frozen dataclass."""

    FORMAT: ClassVar[str]
    dataset: str
    recipe: str
    """SHA-256 of the part of the recipe that decides the content."""
    source: dict[str, Any]
    """Provenance: kind, digest over names and contents, files, bytes, description."""
    documents: dict[str, Any]
    """The documents table: BLAKE3, rows."""

    def manifest(self) -> bytes:
        """The manifest's bytes; their SHA-256 is the snapshot's name."""
        return atomic.canonical_json({"format": self.FORMAT, **dataclasses.asdict(cast(Any, self))})

    @property
    def sha256(self) -> str:
        return digest.sha256(self.manifest())

    def shards(self) -> Sequence[ShardFile]:
        """The shards of all splits, each once."""
        every = (shard for split in cast(Any, self).splits.values() for shard in split.shards)
        return list({shard.blake3: shard for shard in every}.values())


@dataclass(frozen=True)
class TokenShard(ShardFile):
    """One shard of tokens, as in the manifest."""

    tokens: int
    documents: int


@dataclass(frozen=True)
class TokenSplit:
    """One split of a snapshot. `text_bytes` counts the documents' UTF-8, for bits per byte."""

    documents: int
    tokens: int
    text_bytes: int
    shards: tuple[TokenShard, ...]


@dataclass(frozen=True)
class TokenizerRecord:
    """The tokenizer a snapshot was made with; its file is named by the SHA-256."""

    sha256: str
    vocab_size: int
    end_of_document: int
    """The token that ends every document."""

    @property
    def dtype(self) -> str:
        """The narrowest known type that holds every token."""
        return "uint16" if self.vocab_size <= 2**16 else "uint32"


@dataclass(frozen=True)
class TextSnapshot(SnapshotManifest):
    """An immutable dataset snapshot. Equal inputs give equal manifests, so it has no date."""

    FORMAT: ClassVar = FORMAT

    dataset: str
    recipe: str
    source: dict[str, Any]
    documents: dict[str, Any]
    tokenizer: TokenizerRecord
    dtype: str
    splits: dict[str, TokenSplit]


def shard_path(tier: Path, shard: ShardFile) -> Path:
    return tier / paths.named(paths.SHARDS, shard.blake3)


def manifest_path(tier: Path, sha256: str) -> Path:
    return tier / paths.named(paths.SNAPSHOTS, sha256)


def encode_shard(runs: Iterable[npt.NDArray[Any]], lengths: npt.NDArray[np.int64], dtype: str) -> bytes:
    """The bytes of a shard with documents of these lengths; the runs (1-d arrays) have their tokens in order."""
    ends = np.cumsum(lengths)
    body = int(ends[-1]) * DTYPES[dtype].itemsize if len(ends) else 0
    offsets = np.concatenate([[0], ends]).astype(OFFSETS)
    tokens = (np.ascontiguousarray(run, DTYPES[dtype]).data for run in runs)
    return b"".join(itertools.chain(tokens, (bytes(-body % 8), offsets.data)))


def write_shard(
    tier: Path, documents: Sequence[npt.NDArray[Any]], dtype: str, scratch: Path | None = None
) -> TokenShard:
    """Write a shard of these documents (each a 1-d array of tokens) as `write_runs` does."""
    return write_runs(tier, documents, np.array([len(document) for document in documents], np.int64), dtype, scratch)


def write_runs(
    tier: Path,
    runs: Iterable[npt.NDArray[Any]],
    lengths: npt.NDArray[np.int64],
    dtype: str,
    scratch: Path | None,
) -> TokenShard:
    """Write a shard, whose documents are given as to `encode_shard`, into the tier, unless it is there and whole, and
    describe it."""
    put = put_shard(tier, encode_shard(runs, lengths, dtype), scratch)
    return TokenShard(*put, tokens=int(lengths.sum()), documents=len(lengths))


def put_shard(tier: Path, data: bytes, scratch: Path | None) -> tuple[str, int]:
    """Put a shard of these bytes into the tier, unless it is there and whole; returns its BLAKE3 and its size."""
    file = ShardFile(digest.of_bytes(data), len(data))
    path = shard_path(tier, file)
    if not atomic.create_only(path, data, scratch) and not (verify.is_whole(path, file) and made_young(path)):
        atomic.replace(path, data, scratch)
    return file.blake3, file.bytes


def made_young(path: Path) -> bool:
    """Whether there is such a file. If so, its time is set to now, so that the garbage collection, which goes by age,
    does not remove it before the caller refers to it."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def write_manifest(tier: Path, snapshot: SnapshotManifest, scratch: Path | None = None) -> str:
    """Write the manifest into the tier; returns its SHA-256."""
    path = manifest_path(tier, snapshot.sha256)
    if not (atomic.create_only(path, snapshot.manifest(), scratch) or made_young(path)):
        atomic.replace(path, snapshot.manifest(), scratch)
    return snapshot.sha256


def read_manifest(tier: Path, sha256: str) -> TextSnapshot:
    """Read and verify a manifest. Raises ValueError when it is missing, damaged or of another format."""
    return parse_manifest(*stored_manifest(tier, sha256))


def stored_manifest(tier: Path, sha256: str) -> tuple[bytes, str, str]:
    """A manifest's bytes, its SHA-256 and its path, for `parse_manifest`. Raises ValueError when it is missing."""
    path = manifest_path(tier, sha256)
    try:
        return regular_file.read(path), sha256, str(path)
    except FileNotFoundError:
        raise LackingTier(f"{path}: there is no such snapshot") from None


def parse_manifest(data: bytes, sha256: str, where: str) -> TextSnapshot:
    """The snapshot of a manifest's bytes. Raises ValueError, beginning with `where`, as `read_manifest`.

    Digests become file names, so they are checked here: no manifest can name a file outside its tier.
    """
    version, value = manifest_value(data, sha256, where)
    if version != FORMAT:
        raise ValueError(f"{where}: format: found {version!r}, expected {FORMAT!r}")
    with describing(where, FORMAT):
        return TextSnapshot(**text_fields(value))


def text_fields(value: dict[str, Any]) -> dict[str, Any]:
    """The fields of a manifest of texts, typed. `describing` turns its errors into errors of the manifest."""
    splits = {name: _split(split) for name, split in value["splits"].items()}
    digest.checked(value["tokenizer"]["sha256"])
    return {**value, "tokenizer": TokenizerRecord(**value["tokenizer"]), "splits": splits}


def manifest_value(data: bytes, sha256: str, where: str) -> tuple[object, dict[str, Any]]:
    """A manifest's format, and its other fields. Raises ValueError for bytes of another SHA-256."""
    verify.check_sha256(data, sha256, where)
    try:
        value = parsing.value(data)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON: {error}") from None
    return (value.pop("format", None), value) if isinstance(value, dict) else (None, {})


@contextlib.contextmanager
def describing(where: str, format: str) -> Iterator[None]:
    """The context of decoding: names `where` in the error about a manifest with missing or wrong fields."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{where}: not a manifest of format {format}: {error}") from error


def counted(described: Described) -> Described:
    """A part of a manifest, once its counts are counts: sizes of files and of memory follow. Raises ValueError."""
    for field in dataclasses.fields(cast(Any, described)):
        value = getattr(described, field.name)
        if field.type in (int, "int") and (type(value) is not int or value < 0):
            raise ValueError(f"{field.name}: found {value!r}, expected a whole number that is not negative")
    return described


def _split(value: dict[str, Any]) -> TokenSplit:
    described = tuple(counted(TokenShard(**shard)) for shard in value["shards"])
    for shard in described:
        digest.checked(shard.blake3)
    return counted(TokenSplit(**{**value, "shards": described}))


def open_shard(tier: Path, shard: TokenShard, dtype: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """A shard's tokens and document offsets, memory-mapped and read-only.

    Raises ValueError when the file does not have the described size; staging verifies its contents.
    """
    width = DTYPES[dtype].itemsize
    padded = -(-shard.tokens * width // 8) * 8
    data = mapped(tier, shard, padded + 8 * (shard.documents + 1))
    return data[: shard.tokens * width].view(DTYPES[dtype]), data[padded:].view(OFFSETS)


def mapped(tier: Path, shard: ShardFile, expected: int) -> npt.NDArray[np.uint8]:
    """A shard's bytes, memory-mapped. Raises ValueError when their number is not `expected`, or not as described."""
    path = shard_path(tier, shard)
    actual = path.stat().st_size
    if actual != expected or actual != shard.bytes:
        raise ValueError(f"{path}: found {actual} bytes, expected {shard.bytes}")
    return np.memmap(path, np.uint8, "r")


def documents(tier: Path, shard: TokenShard, dtype: str) -> Iterator[npt.NDArray[Any]]:
    """The tokens of each document of a shard, mapped. Raises ValueError as `open_shard` does."""
    tokens, offsets = open_shard(tier, shard, dtype)
    for begin, end in itertools.pairwise(offsets.tolist()):
        yield tokens[begin:end]
