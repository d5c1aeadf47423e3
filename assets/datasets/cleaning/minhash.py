"""MinHash of a text's word 5-grams (Broder 1997), and its bands for locality-sensitive hashing.

PERMUTATIONS, BANDS and ROWS are FineWeb's. Two texts of Jaccard similarity s share a band with probability
1 - (1 - s^8)^14: 0.77 at s = 0.75, 0.92 at 0.8, 0.99 at 0.86, 0.9996 at 0.9, and 0.001 at 0.3.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from assets.datasets.cleaning.words import BASE, WordHashes, grams, hashes, mixed

SHINGLE = 5
"""Words in a row that make one element of the set that represents a text."""
BANDS, ROWS = 14, 8
PERMUTATIONS = BANDS * ROWS
AT_ONCE = 1024
"""Elements permuted at once, so that all their permutations fit a cache."""
EMPTY = np.uint32(0xFFFFFFFF)
"""The value of a text without a word under each permutation."""

Signature = npt.NDArray[np.uint32]


def signature(text: str) -> Signature:
    """The least of the text's shingles under each permutation: shape (PERMUTATIONS,)."""
    return of_words(hashes(text))


def bands(signature: Signature) -> WordHashes:
    """A hash of each band of a signature, shape (BANDS,); empty for the signature of a text without a word."""
    if (signature == EMPTY).all():
        return np.empty(0, np.uint64)
    pairs = signature.astype(np.uint64).reshape(BANDS, ROWS // 2, 2)
    numbers = pairs[:, :, 0] << np.uint64(32) | pairs[:, :, 1]
    return mixed(mixed(numbers ^ _places()).sum(axis=1, dtype=np.uint64))


def of_words(words: WordHashes) -> Signature:
    """The signature of a text from the hashes of its words; a text with fewer than SHINGLE words is one shingle."""
    shingles = mixed(grams(words, min(SHINGLE, max(len(words), 1))))
    elements = (shingles >> np.uint64(32)).astype(np.uint32)
    factors, terms = _permutations()
    least = np.full(PERMUTATIONS, EMPTY, np.uint32)
    for start in range(0, len(elements), AT_ONCE):
        permuted = factors * elements[start : start + AT_ONCE]
        permuted += terms
        np.minimum(least, permuted.min(axis=1), out=least)
    return least


def similarity(signatures: npt.NDArray[np.uint32], others: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """The estimated Jaccard similarities of signatures, pair by pair: shape (pairs, PERMUTATIONS) each.

    Unbiased, with standard deviation sqrt(s (1 - s) / PERMUTATIONS): 0.038 at s = 0.8.
    """
    return np.asarray(np.mean(signatures == others, axis=1))


@cache
def _places() -> WordHashes:
    """A random number for each pair of rows, so that equal rows in different bands give different hashes."""
    return mixed(np.arange(1, PERMUTATIONS // 2 + 1, dtype=np.uint64) * np.uint64(BASE)).reshape(BANDS, ROWS // 2)


@cache
def _permutations() -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Factors (odd) and terms of x -> a x + b modulo 2^32, one row a permutation."""
    random = mixed(np.arange(1, 2 * PERMUTATIONS + 1, dtype=np.uint64) * np.uint64(BASE))
    numbers = (random >> np.uint64(32)).astype(np.uint32).reshape(2, PERMUTATIONS, 1)
    return numbers[0] | np.uint32(1), numbers[1]
