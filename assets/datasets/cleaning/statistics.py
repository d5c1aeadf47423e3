"""Statistics of a text, by which quality rules decide; each is computed at its first use and then kept.

A token is a longest run without white space, as in Gopher; words are as in `words`. Lines and paragraphs are those
with a token, without the white space around them. A share of nothing is 0.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from assets.datasets.cleaning import characters, words
from assets.datasets.cleaning.words import WordHashes, WordPositions

SHORT_LINE = 30
"""The most characters of a short line (FineWeb)."""
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""The stop words of Gopher."""
HASHED_STOP_WORDS = words.hashes(" ".join(STOP_WORDS))
DOT, ELLIPSIS, NEWLINE = ord("."), ord("…"), ord("\n")


class TextStatistics:
    """The statistics of one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def tokens(self) -> int:
        return len(self._tokens[0])

    @cached_property
    def mean_token_length(self) -> float:
        """The mean length of a token in characters."""
        starts, ends = self._tokens
        return _share(int((ends - starts).sum()), self.tokens)

    @cached_property
    def alphabetic_tokens(self) -> float:
        """The share of tokens with a letter."""
        starts, ends = self._tokens
        seen = np.zeros(len(self._classes) + 1, np.int32)
        np.cumsum(self._classes & characters.ALPHABETIC != 0, dtype=np.int32, out=seen[1:])
        return _share(int(np.count_nonzero(seen[ends] > seen[starts])), self.tokens)

    @cached_property
    def symbols_per_token(self) -> float:
        """Hash signs for each token, or ellipses for each token, whichever is more."""
        ellipses = self.text.count("...") + self.text.count("…")
        return _share(max(self.text.count("#"), ellipses), self.tokens)

    @cached_property
    def stop_words(self) -> int:
        """How many of STOP_WORDS occur."""
        return sum(bool((self.words == each).any()) for each in HASHED_STOP_WORDS)

    @cached_property
    def words(self) -> WordHashes:
        """The hash of each word."""
        return words.hashes_at(self._codes, *self._words)

    @cached_property
    def bullet_lines(self) -> float:
        """The share of lines that begin with a bullet."""
        return self._share_of_lines(self._classes[self._lines[0]] & characters.BULLET != 0)

    @cached_property
    def punctuated_lines(self) -> float:
        """The share of lines that end in a mark that ends a sentence, or in a closing quotation mark."""
        return self._share_of_lines(self._classes[self._lines[1] - 1] & characters.TERMINAL != 0)

    @cached_property
    def ellipsis_lines(self) -> float:
        """The share of lines that end in an ellipsis."""
        starts, ends = self._lines
        dots = ends - starts >= 3
        for place in (1, 2, 3):
            dots &= self._codes[np.maximum(ends - place, 0)] == DOT
        return self._share_of_lines(dots | (self._codes[ends - 1] == ELLIPSIS))

    @cached_property
    def short_lines(self) -> float:
        """The share of lines of at most SHORT_LINE characters."""
        starts, ends = self._lines
        return self._share_of_lines(ends - starts <= SHORT_LINE)

    @cached_property
    def duplicate_lines(self) -> float:
        """The share of lines that repeat an earlier line."""
        return _repeated(self.text.split("\n"))

    @cached_property
    def duplicate_paragraphs(self) -> float:
        """The share of paragraphs (parts between empty lines) that repeat an earlier paragraph."""
        return _repeated(self.text.split("\n\n"))

    def top_gram(self, length: int) -> float:
        """The share of the characters of words that are in the most frequent run of `length` words.

        0 when no run occurs twice; among equally frequent runs, the run with the lowest hash counts.
        """
        grams = words.grams(self.words, length)
        sharing = _sharing(grams)
        if not len(grams) or sharing.max() < 2:
            return 0.0
        least = words.counted(grams[sharing == sharing.max()])[1].max()
        distinct, counts = words.counted(grams[sharing >= least])
        most = int(counts.max())
        first = int(np.argmax(grams == distinct[counts.argmax()]))
        return _share(int(self._lengths[first : first + length].sum()) * most, self._letters) if most > 1 else 0.0

    def duplicate_grams(self, length: int) -> float:
        """The share of the characters of words that are in a run of `length` words that occurs more than once."""
        grams = words.grams(self.words, length)
        places = np.flatnonzero(_sharing(grams) > 1)
        if not len(places):
            return 0.0
        grams = grams[places]
        distinct, counts = words.counted(grams)
        repeated = places[counts[np.searchsorted(distinct, grams)] > 1]
        covered = np.zeros(len(self.words), bool)
        for place in range(length):
            covered[repeated + place] = True
        return _share(int(self._lengths[covered].sum()), self._letters)

    @cached_property
    def _codes(self) -> characters.Codes:
        return characters.codes_of(self.text)

    @cached_property
    def _classes(self) -> characters.Classes:
        return characters.classes_of(self._codes)

    @cached_property
    def _words(self) -> tuple[WordPositions, WordPositions]:
        return words.spans(self._classes)

    @cached_property
    def _lengths(self) -> WordPositions:
        starts, ends = self._words
        return ends - starts

    @cached_property
    def _letters(self) -> int:
        return int(self._lengths.sum())

    @cached_property
    def _tokens(self) -> tuple[WordPositions, WordPositions]:
        """The beginning and the end of each token."""
        inside = np.zeros(len(self._classes) + 2, bool)
        np.equal(self._classes & characters.SPACE, 0, out=inside[1:-1])
        edges = np.flatnonzero(inside[1:] != inside[:-1])
        return edges[::2], edges[1::2]

    @cached_property
    def _lines(self) -> tuple[WordPositions, WordPositions]:
        """The beginning of the first token and the end of the last token of each line."""
        starts, ends = self._tokens
        line = np.cumsum(self._codes == NEWLINE, dtype=np.int32)[starts]
        opens = np.ones(len(line) + 1, bool)
        np.not_equal(line[1:], line[:-1], out=opens[1:-1])
        return (starts[opens[:-1]], ends[opens[1:]]) if len(starts) else (starts, ends)

    def _share_of_lines(self, chosen: npt.NDArray[np.bool_]) -> float:
        return _share(int(np.count_nonzero(chosen)), len(chosen))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _repeated(parts: list[str]) -> float:
    stripped = list(filter(None, map(str.strip, parts)))
    return _share(len(stripped) - len(set(stripped)), len(stripped))


def _sharing(grams: WordHashes) -> WordPositions:
    """For each gram, how many grams begin with the same bits: an upper limit of how many equal it, mostly exact.

    At low cost it finds the few grams that have to be sorted.
    """
    bits = len(grams).bit_length() + 2
    slots = (grams >> np.uint64(64 - bits)).view(np.int64)
    return np.bincount(slots, minlength=1 << bits)[slots]
