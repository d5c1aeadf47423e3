"""Texts of random words with known similarity."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from slipway.assets.datasets.cleaning import minhash
from slipway.assets.datasets.cleaning.words import WordHashes
from slipway.assets.datasets.cleaning.words import fingerprints as fingerprints_of

VOCABULARY = [f"w{number}" for number in range(5000)]


def words(draw: random.Random, count: int) -> list[str]:
    return draw.choices(VOCABULARY, k=count)


def similar(draw: random.Random, similarity: float, shingles: int = 1000) -> tuple[str, str]:
    """Two texts whose sets of word 5-grams have this Jaccard similarity: one's middle is the other's end."""
    shared = round(2 * shingles * similarity / (1 + similarity))
    both = words(draw, shared + minhash.SHINGLE - 1)
    own, others = (words(draw, shingles - shared) for _ in range(2))
    return " ".join(own + both), " ".join(both + others)


def connection(folder: Path, megabytes: int = 500) -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute(f"set memory_limit = '{megabytes}MB'; set temp_directory = '{folder}'; set threads = 1")
    return made


def signatures(rows: Iterable[tuple[int, str]], similarity: float = 0.8) -> pa.Table:
    """The relation in which near-duplicates of this similarity are searched."""
    numbers, texts = zip(*rows, strict=True) if rows else ((), ())
    made = [minhash.signature(text) for text in texts]
    return features(numbers, [minhash.bands(each, similarity) for each in made], made)


def features(rows: Sequence[int], bands: Iterable[WordHashes], signatures: Iterable[minhash.Signature]) -> pa.Table:
    """The same of rows whose bands and signatures are given."""
    return pa.table(
        {
            "row": pa.array(rows, pa.int64()),
            "bands": pa.array(list(bands), pa.list_(pa.uint64())),
            "signature": pa.array([each.tobytes() for each in signatures], pa.binary(4 * minhash.PERMUTATIONS)),
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
