"""Fingerprints: the few of a text's word n-grams by which a passage that it shares with another is found.

Winnowing (Schleimer, Wilkerson, Aiken, SIGMOD 2003, 3): of every WINDOW n-grams in a row, the one with the lowest
hash is kept. Two texts that share PASSAGE = NGRAM + WINDOW - 1 words in a row share a whole window, so both keep the
same n-gram of it. About 2 / (WINDOW + 1) of the n-grams are kept.
"""

import numpy as np

from assets.datasets.cleaning.words import Hashes, counted, grams, hashes, mixed

NGRAM = 8
WINDOW = 6
PASSAGE = NGRAM + WINDOW - 1
"""Words that two texts must share in a row to be sure of a common fingerprint: 13, as in GPT-3 (Brown et al. 2020)."""


def fingerprints(text: str) -> Hashes:
    """The fingerprints of a text, ascending, each once; none if it has fewer than PASSAGE words.

    Two texts with PASSAGE equal words in a row have one in common, whatever surrounds these.
    """
    return winnowed(hashes(text))


def winnowed(words: Hashes) -> Hashes:
    """The fingerprints of a text with these hashes of words."""
    return counted(of_passages(words))[0]


def of_passages(words: Hashes) -> Hashes:
    """The fingerprint that every PASSAGE words in a row have for certain, in order, whatever surrounds them."""
    if len(words) < PASSAGE:
        return np.empty(0, np.uint64)
    lowest = mixed(grams(words, NGRAM))
    pairs = np.minimum(lowest[:-1], lowest[1:])
    fours = np.minimum(pairs[:-2], pairs[2:])
    return np.minimum(fours[:-2], fours[2:])
