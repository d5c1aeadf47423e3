"""Pieces: how many megabytes of a corpus a tokenizer can be trained on in bounded memory.

The trainer keeps each distinct piece of the text, once, with the places of its bytes. Where words repeat, pieces do
too; text without spaces, in Chinese or in base64, is new pieces throughout, and 100 MB of it would take gigabytes. How
fast pieces grow is measured on the first megabytes of the sample, whose documents are in the order of their hashes,
which is a random one.
"""

from collections.abc import Callable, Iterable
from math import log2

from tokenizers import pre_tokenizers

MEMORY = 1_000_000_000
"""Bytes that the trainer's pieces may take, about: the growth is extrapolated."""
PIECE_BYTES = 350
BYTE_BYTES = 50
"""What the trainer takes for a piece, and in addition for each of its bytes (measured: benchmarks/RESULTS.md, "Training
of a tokenizer: memory")."""
MEASURED = 2.0
"""Megabytes of text in each of the two parts whose pieces are counted."""
Between = Callable[[float, float], Iterable[str]]
"""Gives the texts of the sample from so many megabytes on to so many."""


def affordable(megabytes: float, between: Between, splitting: pre_tokenizers.PreTokenizer) -> float:
    """Of `megabytes`, how many the sample may have so that its distinct pieces take no more than MEMORY, about.

    The pieces of n parts of a text take c n^b (Heaps 1978, Information Retrieval, 7.5): c and b follow from the first
    part and the first two. A pure function of the texts; a sample of two parts is always allowed.
    """
    if megabytes <= 2 * MEASURED:
        return megabytes
    known = set[int]()
    one = _cost(between(0.0, MEASURED), known, splitting)
    two = one + _cost(between(MEASURED, 2 * MEASURED), known, splitting)
    growth = log2(two / one) if one else 0.0
    if not growth or one * (megabytes / MEASURED) ** growth <= MEMORY:
        return megabytes
    return max(float((MEMORY / one) ** (1 / growth)), 2.0) * MEASURED


def _cost(texts: Iterable[str], known: set[int], splitting: pre_tokenizers.PreTokenizer) -> int:
    """The bytes that the trainer takes for pieces of the texts that are not known; they are known afterwards."""
    cost = 0
    for text in texts:
        for piece, _ in splitting.pre_tokenize_str(text):
            if (key := hash(piece)) not in known:
                known.add(key)
                cost += PIECE_BYTES + BYTE_BYTES * len(piece)
    return cost
