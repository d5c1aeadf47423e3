"""MinHash of a text's word 5-grams (Broder 1997), and its bands for locality-sensitive hashing.

A signature has 112 permutations, as FineWeb's. Its bands follow from the similarity that is asked for: with b bands of
r rows, two texts of Jaccard similarity s share a band with probability 1 - (1 - s^r)^b, and r is the largest for which
that is RECALL at the similarity asked for. At 0.8 there are 16 bands of 7 rows: 0.98 at s = 0.8, 0.02 at s = 0.4.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from slipway.assets.datasets.cleaning.word_hashes import BASE, WordHashes, grams, hashes, mixed

SHINGLE = 5
"""Words in a row that make one element of the set that represents a text."""
PERMUTATIONS = 112
RECALL = 0.95
"""The smallest share of pairs with exactly the requested similarity that must share a band."""
AT_ONCE = 1024
"""Elements permuted at once, so that all their permutations fit a cache."""
EMPTY = np.uint32(0xFFFFFFFF)
"""The value of a text without a word under each permutation."""

Signature = npt.NDArray[np.uint32]


def signature(text: str) -> Signature:
    """The smallest value of the text's shingles under each permutation: shape (PERMUTATIONS,)."""
    return of_words(hashes(text))


def shared_band(similarity: float, bands: int, rows: int) -> float:
    """The probability that two texts of this Jaccard similarity share a band (Leskovec, Rajaraman, Ullman, Mining of
    Massive Datasets, 3.4.2)."""
    return 1 - float((1 - similarity**rows) ** bands)


@cache
def banding(similarity: float) -> tuple[int, int]:
    """The bands and the rows of each for a similarity between 0 and 1: the longest bands that find RECALL of the pairs
    of this similarity, because longer bands agree by chance less often; bands of one row where none does."""
    shapes = [(PERMUTATIONS // rows, rows) for rows in range(PERMUTATIONS, 0, -1)]
    return next((shape for shape in shapes if shared_band(similarity, *shape) >= RECALL), shapes[-1])


def bands(signature: Signature, similarity: float) -> WordHashes:
    """A hash of each band of a signature for the similarity asked for; empty for the signature of a text without a
    word."""
    if (signature == EMPTY).all():
        return np.empty(0, np.uint64)
    count, rows = banding(similarity)
    numbers = signature[: count * rows].astype(np.uint64).reshape(count, rows)
    return mixed(mixed(numbers ^ _rows_of_bands()[: count * rows].reshape(count, rows)).sum(axis=1, dtype=np.uint64))


def of_words(word_hashes: WordHashes) -> Signature:
    """The signature of a text from the hashes of its words; a text with fewer than SHINGLE words is one shingle."""
    shingles = mixed(grams(word_hashes, min(SHINGLE, max(len(word_hashes), 1))))
    elements = (shingles >> np.uint64(32)).astype(np.uint32)
    factors, addends = _permutations()
    least = np.full(PERMUTATIONS, EMPTY, np.uint32)
    for start in range(0, len(elements), AT_ONCE):
        permuted = factors * elements[start : start + AT_ONCE]
        permuted += addends
        np.minimum(least, permuted.min(axis=1), out=least)
    return least


def similarity(signatures: npt.NDArray[np.uint32], others: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """The estimated Jaccard similarities of signatures, pair by pair: shape (pairs, PERMUTATIONS) each.

    Unbiased, with standard deviation sqrt(s (1 - s) / PERMUTATIONS): 0.038 at s = 0.8.
    """
    return np.asarray(np.mean(signatures == others, axis=1))


@cache
def _rows_of_bands() -> WordHashes:
    """A random number for each row, so that equal rows in different bands give different hashes."""
    return mixed(np.arange(1, PERMUTATIONS + 1, dtype=np.uint64) * np.uint64(BASE))


@cache
def _permutations() -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Factors (odd) and terms of x -> a x + b modulo 2^32, one row a permutation."""
    random = mixed(np.arange(1, 2 * PERMUTATIONS + 1, dtype=np.uint64) * np.uint64(BASE))
    numbers = (random >> np.uint64(32)).astype(np.uint32).reshape(2, PERMUTATIONS, 1)
    return numbers[0] | np.uint32(1), numbers[1]
