"""Leaks: which examples share a passage with a training document.

A passage is 13 words in a row (GPT-3, Brown et al. 2020, appendix C), by the hash of its words; a text of fewer words
is one passage, which only a document of the same words shares. One that is in more training documents than `common` is
boilerplate, such as a licence, unless passages that are shared make up `share` of the example. Training documents are
read one after the other; what is kept of them is what the examples have too.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from slipway.assets.datasets.cleaning.ngrams import PASSAGE
from slipway.assets.datasets.cleaning.words import grams, hashes

Hashes = npt.NDArray[np.uint64]


def leaked(examples: Sequence[str], training: Iterable[str], common: int, share: float) -> list[int]:
    """The places of the examples that leaked, ascending. Takes memory in proportion to the examples alone."""
    passages = [np.unique(_passages(text)) for text in examples]
    known = np.unique(np.concatenate(passages)) if passages else np.empty(0, np.uint64)
    counts = np.zeros(len(known), np.int64)
    for text in training:
        found = np.unique(_passages(text))
        counts[np.searchsorted(known, found[np.isin(found, known)])] += 1
    return [place for place, own in enumerate(passages) if len(own) and _is_leaked(own, known, counts, common, share)]


def _is_leaked(own: Hashes, known: Hashes, counts: npt.NDArray[np.int64], common: int, share: float) -> bool:
    seen = counts[np.searchsorted(known, own)]
    return bool(((seen > 0) & (seen <= common)).any() or (seen > 0).sum() >= share * len(own))


def _passages(text: str) -> Hashes:
    """The hashes of every PASSAGE words in a row; of a text with fewer words, the one hash of all of them."""
    words = hashes(text)
    return grams(words, min(PASSAGE, max(1, len(words))))
