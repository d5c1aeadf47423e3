"""Statistics of a text for the quality rules. Each is computed at its first use and cached.

A token is a longest run without white space, as in Gopher; words are as in `words`. Lines and paragraphs are those
with a token, without the white space around them. A share of nothing is 0.
"""

import re
from functools import cached_property

import numpy as np
import numpy.typing as npt

from slipway.assets.datasets.cleaning import word_hashes
from slipway.assets.datasets.cleaning.language import ENGLISH, stop_word_hashes
from slipway.assets.datasets.cleaning.word_hashes import WordHashes, WordPositions
from slipway.trainer.base import characters

SHORT_LINE = 30
"""The most characters of a short line (FineWeb)."""
SENTENCE_END = re.compile(
    r"""[.!?]["'”’»)\]]*[ \t]+(?![a-z])(?=\S)|[。！？।॥؟۔]["'”’»」』）]*[ \t]*(?=[^\s。！？।॥؟۔"'”’»」』）])"""
)
"""The end of a sentence if the next one begins on the same line, and not in lower case as after an abbreviation."""
DOT, ELLIPSIS, NEWLINE, UNDERSCORE = map(ord, ".…\n_")


class TextStatistics:
    """The statistics of one text in a language, as `language_of` names it."""

    def __init__(self, text: str, language: str = ENGLISH) -> None:
        self.text = text
        self._language = language

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
        alphabetic_before = np.zeros(len(self._classes) + 1, np.int32)
        np.cumsum(self._classes & characters.ALPHABETIC != 0, dtype=np.int32, out=alphabetic_before[1:])
        return _share(int(np.count_nonzero(alphabetic_before[ends] > alphabetic_before[starts])), self.tokens)

    @cached_property
    def symbols_per_token(self) -> float:
        """Hash signs for each token, or ellipses for each token, whichever is more."""
        ellipses = self.text.count("...") + self.text.count("…")
        return _share(max(self.text.count("#"), ellipses), self.tokens)

    @cached_property
    def stop_words(self) -> int | None:
        """The number of the language's stop words that occur; None for a language without a list of them."""
        hashes = stop_word_hashes(self._language)
        if hashes is None:
            return None
        return int(np.count_nonzero((self.word_hashes == hashes[:, None]).any(axis=1)))

    @cached_property
    def sentences(self) -> int:
        """The sentences: the lines, and the ends of sentences within lines."""
        return len(self._lines[0]) + len(SENTENCE_END.findall(self.text))

    @cached_property
    def word_hashes(self) -> WordHashes:
        """The hash of each word."""
        return word_hashes.hashes_at(self._codes, *self._word_spans)

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
        for distance in (1, 2, 3):
            dots &= self._codes[np.maximum(ends - distance, 0)] == DOT
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

    @cached_property
    def duplicate_line_characters(self) -> float:
        """The share of the text's characters in lines that repeat an earlier line."""
        return _share(_repeated_characters(self.text.split("\n")), len(self.text))

    @cached_property
    def duplicate_paragraph_characters(self) -> float:
        """The share of the text's characters in paragraphs that repeat an earlier paragraph."""
        return _share(_repeated_characters(self.text.split("\n\n")), len(self.text))

    @cached_property
    def mean_line_length(self) -> float:
        """Characters in a line, on average, empty lines included."""
        lines = self.text.splitlines()
        return _share(sum(map(len, lines)), len(lines))

    @cached_property
    def longest_line(self) -> int:
        """Characters in the longest line."""
        return max(map(len, self.text.splitlines()), default=0)

    @cached_property
    def alphabetic_characters(self) -> float:
        """The share of characters that are letters."""
        return _share(int(np.count_nonzero(self._classes & characters.ALPHABETIC)), len(self._classes))

    @cached_property
    def newlines_per_word(self) -> float:
        """Newlines for each piece of the text: a list has many."""
        return _share(self.text.count("\n"), len(self._pieces[0]))

    def top_gram(self, length: int) -> float:
        """The share of the text's characters in its most frequent run of `length` pieces, with a space between two.

        Among equally frequent runs, the first counts; overlapping ones count as often as they occur, so that the share
        may exceed 1. As datatrove's `find_top_duplicate` measures it.
        """
        grams = word_hashes.grams(self._piece_hashes, length)
        if not len(grams):
            return 0.0
        _, firsts, counts = np.unique(grams, return_index=True, return_counts=True)
        most = int(counts.max())
        first = int(firsts[counts == most].min())
        characters_of_run = int(self._piece_lengths[first : first + length].sum()) + length - 1
        return _share(characters_of_run * most, len(self.text))

    def duplicate_grams(self, length: int) -> float:
        """The share of the text's characters in runs of `length` pieces that repeat an earlier run.

        The text is read from its beginning: a run that occurred before counts, and reading goes on behind it, so that
        no character counts twice; the first occurrence does not count. As datatrove's `find_all_duplicate` measures it.
        """
        grams = word_hashes.grams(self._piece_hashes, length)
        indexes = np.flatnonzero(_sharing(grams) > 1)
        ends = np.concatenate([[0], np.cumsum(self._piece_lengths)])
        known = set[int]()
        behind = 0
        repeated = 0
        for index, gram in zip(indexes.tolist(), grams[indexes].tolist(), strict=True):
            if index < behind:
                continue
            if gram in known:
                repeated += int(ends[index + length] - ends[index])
                behind = index + length
            else:
                known.add(gram)
        return _share(repeated, len(self.text))

    @cached_property
    def _pieces(self) -> tuple[WordPositions, WordPositions]:
        """The beginning and the end of each word, and of each other character that is no white space.

        The repetition rules of Gopher are measured on these, because datatrove's word tokenizers separate punctuation;
        an underscore belongs to its word.
        """
        kinds = np.where(self._codes == UNDERSCORE, characters.WORD, self._classes)
        others = kinds & (characters.SPACE | characters.WORD | characters.ALONE) == 0
        return word_hashes.spans(np.where(others, characters.ALONE, kinds))

    @cached_property
    def _piece_hashes(self) -> WordHashes:
        return word_hashes.hashes_at(self._codes, *self._pieces)

    @cached_property
    def _piece_lengths(self) -> WordPositions:
        starts, ends = self._pieces
        return ends - starts

    @cached_property
    def _codes(self) -> characters.Codes:
        return characters.codes_of(self.text)

    @cached_property
    def _classes(self) -> characters.Classes:
        return characters.classes_of(self._codes)

    @cached_property
    def _word_spans(self) -> tuple[WordPositions, WordPositions]:
        return word_hashes.spans(self._classes)

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
        if len(starts):
            return starts[opens[:-1]], ends[opens[1:]]
        return starts, ends

    def _share_of_lines(self, chosen: npt.NDArray[np.bool_]) -> float:
        return _share(int(np.count_nonzero(chosen)), len(chosen))


def _share(part: int, total: int) -> float:
    return part / total if total else 0.0


def _repeated(parts: list[str]) -> float:
    stripped = list(filter(None, map(str.strip, parts)))
    return _share(len(stripped) - len(set(stripped)), len(stripped))


def _repeated_characters(parts: list[str]) -> int:
    """The characters, without the white space around them, of the parts that repeat an earlier one."""
    stripped = list(filter(None, map(str.strip, parts)))
    return sum(map(len, stripped)) - sum(map(len, set(stripped)))


def _sharing(grams: WordHashes) -> WordPositions:
    """For each gram, the number of grams with the same first bits: an upper limit of its repetitions, mostly exact.

    This cheaply finds the few grams that have to be sorted.
    """
    bits = len(grams).bit_length() + 2
    slots = (grams >> np.uint64(64 - bits)).view(np.int64)
    return np.bincount(slots, minlength=1 << bits)[slots]
