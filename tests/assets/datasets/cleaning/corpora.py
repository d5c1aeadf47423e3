"""Texts of random words with known similarity."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from slipway.assets.datasets.cleaning import minhash
from slipway.assets.datasets.cleaning.word_hashes import WordHashes
from slipway.assets.datasets.cleaning.word_hashes import fingerprints as fingerprints_of

VOCABULARY = [f"w{number}" for number in range(5000)]


def prose(draw: random.Random, count: int) -> list[str]:
    return draw.choices(VOCABULARY, k=count)


def similar(draw: random.Random, similarity: float, shingles: int = 1000) -> tuple[str, str]:
    """Two texts whose sets of word 5-grams have this Jaccard similarity: one's middle is the other's end."""
    shared = round(2 * shingles * similarity / (1 + similarity))
    both = prose(draw, shared + minhash.SHINGLE - 1)
    own, others = (prose(draw, shingles - shared) for _ in range(2))
    return " ".join(own + both), " ".join(both + others)


def connection(folder: Path, megabytes: int = 500) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute(f"set memory_limit = '{megabytes}MB'; set temp_directory = '{folder}'; set threads = 1")
    return database


def signatures(rows: Iterable[tuple[int, str]], similarity: float = 0.8) -> pa.Table:
    """The relation in which near-duplicates of this similarity are searched."""
    numbers, texts = zip(*rows, strict=True) if rows else ((), ())
    signatures_of_texts = [minhash.signature(text) for text in texts]
    return features(
        numbers, [minhash.bands(signature, similarity) for signature in signatures_of_texts], signatures_of_texts
    )


def features(rows: Sequence[int], bands: Iterable[WordHashes], signatures: Iterable[minhash.Signature]) -> pa.Table:
    """The same of rows whose bands and signatures are given."""
    return pa.table(
        {
            "row": pa.array(rows, pa.int64()),
            "bands": pa.array(list(bands), pa.list_(pa.uint64())),
            "signature": pa.array(
                [signature.tobytes() for signature in signatures], pa.binary(4 * minhash.PERMUTATIONS)
            ),
        }
    )


def fingerprints(texts: list[str]) -> pa.Table:
    """The relation in which contamination is searched; the row of a text is its place."""
    return pa.table(
        {
            "row": pa.array(range(len(texts)), pa.int64()),
            "fingerprints": pa.array([fingerprints_of(text) for text in texts], pa.list_(pa.uint64())),
        }
    )
