"""Words of a text, their hashes and fingerprints: the unit in which near-duplicates and contamination are measured.

A word is a longest run of letters, marks and digits in lower case, so capitals, punctuation and white space make no
difference. In scripts that put no spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) every
character is a word.

Fingerprints are a few of a text's word n-grams, by which a passage that two texts share is found. Winnowing
(Schleimer, Wilkerson, Aiken, SIGMOD 2003, 3): of every WINDOW n-grams in a row, the one with the lowest hash is kept.
Two texts that share PASSAGE = NGRAM + WINDOW - 1 words in a row share a whole window, so both keep the same n-gram of
it. About 2 / (WINDOW + 1) of the n-grams are kept.
"""

import itertools
from functools import cache

import numpy as np
import numpy.typing as npt

from slipway.trainer.base.characters import ALONE, CODE_POINTS, WORD, Classes, Codes, classes_of, codes_of, lowered

WordHashes = npt.NDArray[np.uint64]
WordPositions = npt.NDArray[np.int64]

ASCII = 128
BLOCK = 1 << 14
"""Characters hashed at once, so that the working set fits a cache; only as many characters of a longer word count."""
BASE = 0x9E3779B97F4A7C15
"""The base of the polynomials; odd, so that it has an inverse modulo 2^64."""

NGRAM = 8
WINDOW = 6
PASSAGE = NGRAM + WINDOW - 1
"""Words in a row that two texts must share to have a common fingerprint for certain: 13, as in GPT-3 (Brown et al.
2020)."""


def hashes(text: str) -> WordHashes:
    """A 64-bit hash of each word, in order: the same for the same word in every text, process and machine."""
    codes = codes_of(text)
    return hashes_at(codes, *spans(classes_of(codes)))


def spans(classes: Classes) -> tuple[WordPositions, WordPositions]:
    """The beginning and the end of each word."""
    kinds = classes & (WORD | ALONE)
    edge = np.ones(len(kinds) + 1, bool)
    np.not_equal(kinds[1:], kinds[:-1], out=edge[1:-1])
    edge[:-1] |= kinds >= ALONE
    edges = np.flatnonzero(edge)
    if not len(kinds):
        return edges[:0], edges[:0]
    is_word = kinds[edges[:-1]] != 0
    return edges[:-1][is_word], edges[1:][is_word]


def hashes_at(codes: Codes, starts: WordPositions, ends: WordPositions) -> WordHashes:
    """The hash of each of the words at these ascending spans.

    A word c0 c1 ... hashes to the sum of value(ci) * BASE^i modulo 2^64, mixed. The sums come from one running sum
    over a block: the difference of two of its elements, divided by the power of BASE where the word begins.
    """
    if not len(starts):
        return np.empty(0, np.uint64)
    values = _values(ASCII if codes.dtype == np.uint8 else CODE_POINTS)
    powers, inverses = _powers()
    ends = np.minimum(ends, starts + BLOCK)
    cuts = np.searchsorted(starts, np.arange(0, len(codes) + BLOCK, BLOCK))
    hashes = np.empty(len(starts), np.uint64)
    for first, last in itertools.pairwise(cuts):
        if first == last:
            continue
        begin = starts[first]
        block = values.take(codes[begin : ends[last - 1]])
        block *= powers[: len(block)]
        sums = np.zeros(len(block) + 1, np.uint64)
        np.cumsum(block, out=sums[1:])
        at = starts[first:last] - begin
        hashes[first:last] = (sums[ends[first:last] - begin] - sums[at]) * inverses[at]
    return mixed(hashes)


def grams(hashes: WordHashes, length: int) -> WordHashes:
    """A hash, not mixed, of each run of `length` words, in order; empty for a text with fewer words.

    The hash of a run is a polynomial too, so it follows from the hashes of its two halves.
    """
    if length == 1:
        return hashes
    half = length // 2
    first = grams(hashes, half)
    second = first if length == 2 * half else grams(hashes, length - half)
    count = max(len(hashes) - length + 1, 0)
    return first[:count] * np.uint64(pow(BASE, length - half, 1 << 64)) + second[half : half + count]


def counted(values: WordHashes) -> tuple[WordHashes, WordPositions]:
    """The distinct values in ascending order, and how many times each occurs."""
    ordered = np.sort(values)
    new = np.ones(len(ordered) + 1, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:-1])
    firsts = np.flatnonzero(new)
    return ordered[firsts[:-1]], firsts[1:] - firsts[:-1]


def mixed(values: WordHashes) -> WordHashes:
    """Each bit of a value spread over all bits: the finaliser of SplitMix64 (Steele, Lea, Flood 2014), a bijection."""
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


@cache
def _values(code_points: int) -> WordHashes:
    """A random value for each code point, equal for capitals and small letters."""
    if code_points == ASCII:
        codes = np.array([ord(chr(code).lower()) for code in range(ASCII)], np.uint64)
    else:
        codes = lowered().astype(np.uint64)
    return mixed((codes + np.uint64(1)) * np.uint64(BASE))


@cache
def _powers() -> tuple[WordHashes, WordHashes]:
    """BASE^i and BASE^-i modulo 2^64 for each place in a block and the word that runs past its end."""
    return _powers_of(BASE), _powers_of(pow(BASE, -1, 1 << 64))


def _powers_of(base: int) -> WordHashes:
    factors = np.full(2 * BLOCK, base, np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)


def fingerprints(text: str) -> WordHashes:
    """The fingerprints of a text, ascending, each once; empty for a text of fewer than PASSAGE words.

    Two texts with PASSAGE equal words in a row have a fingerprint in common, whatever surrounds these words.
    """
    return winnowed(hashes(text))


def winnowed(hashes: WordHashes) -> WordHashes:
    """The fingerprints of a text from the hashes of its words."""
    return counted(of_passages(hashes))[0]


def of_passages(hashes: WordHashes) -> WordHashes:
    """The fingerprint of every PASSAGE words in a row, in order, which they have whatever surrounds them."""
    if len(hashes) < PASSAGE:
        return np.empty(0, np.uint64)
    lowest = mixed(grams(hashes, NGRAM))
    pairs = np.minimum(lowest[:-1], lowest[1:])
    fours = np.minimum(pairs[:-2], pairs[2:])
    return np.minimum(fours[:-2], fours[2:])
