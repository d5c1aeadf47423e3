"""Fingerprints: a few of a text's word n-grams, by which a passage that two texts share is found.

Winnowing (Schleimer, Wilkerson, Aiken, SIGMOD 2003, 3): of every WINDOW n-grams in a row, the one with the lowest
hash is kept. Two texts that share PASSAGE = NGRAM + WINDOW - 1 words in a row share a whole window, so both keep the
same n-gram of it. About 2 / (WINDOW + 1) of the n-grams are kept.
"""

import numpy as np

from slipway.assets.datasets.cleaning.words import WordHashes, counted, grams, hashes, mixed

NGRAM = 8
WINDOW = 6
PASSAGE = NGRAM + WINDOW - 1
"""Words in a row that two texts must share to have a common fingerprint for certain: 13, as in GPT-3 (Brown et al.
2020)."""


def fingerprints(text: str) -> WordHashes:
    """The fingerprints of a text, ascending, each once; empty for a text of fewer than PASSAGE words.

    Two texts with PASSAGE equal words in a row have a fingerprint in common, whatever surrounds these words.
    """
    return winnowed(hashes(text))


def winnowed(words: WordHashes) -> WordHashes:
    """The fingerprints of a text from the hashes of its words."""
    return counted(of_passages(words))[0]


def of_passages(words: WordHashes) -> WordHashes:
    """The fingerprint of every PASSAGE words in a row, in order, which they have whatever surrounds them."""
    if len(words) < PASSAGE:
        return np.empty(0, np.uint64)
    lowest = mixed(grams(words, NGRAM))
    pairs = np.minimum(lowest[:-1], lowest[1:])
    fours = np.minimum(pairs[:-2], pairs[2:])
    return np.minimum(fours[:-2], fours[2:])
