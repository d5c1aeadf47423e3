"""Items: finds short evaluation texts that a document contains as a whole.

A question of a benchmark is often shorter than the 13 words of a passage, or is quoted with a word changed, so that no
13 words in a row are left. So an item of up to LONGEST words is also searched for as a whole: word by word, and from
TOLERANT words on with one word changed, added or missing. Of k + 1 runs that do not overlap, k changes leave one
intact: runs of words are looked up by their hash, and then the words around them are compared.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipway.assets.datasets.cleaning import word_hashes
from slipway.assets.datasets.cleaning.decontamination import UNSPACED
from slipway.assets.datasets.cleaning.word_hashes import WordHashes, WordPositions
from slipway.trainer.base.characters import ALONE, classes_of, codes_of, in_lower_case

RUN = 5
"""Words in a row that are looked up."""
TOLERANT = 10
"""The fewest words of an item in which one may differ: two runs fit into it, and questions that differ in one word of
fewer are mostly other questions."""
LONGEST = 52
"""The most words of an item that is searched for as a whole; of a longer one with one change a passage is left."""


@dataclass(frozen=True)
class FoundItem:
    """An item in a document: its index among the items, and its text as the document writes it."""

    item: int
    passage: str


class _HashedText:
    """The words of a text: their hashes, their spelling, and how many words of a spaced script they count as."""

    def __init__(self, text: str) -> None:
        codes = codes_of(text)
        classes = classes_of(codes)
        self.text = text
        self._starts: WordPositions
        self._ends: WordPositions
        self._starts, self._ends = word_hashes.spans(classes)
        self.hashes: WordHashes = word_hashes.hashes_at(codes, self._starts, self._ends)
        self.length = float(np.where(classes[self._starts] & ALONE, 1, UNSPACED).sum()) / UNSPACED

    def spelled(self, first: int, behind: int) -> list[str]:
        """The words there in lower case."""
        return [in_lower_case(self.passage(index, index + 1)) for index in range(first, behind)]

    def passage(self, first: int, behind: int) -> str:
        return self.text[self._starts[first] : self._ends[behind - 1]]


class ItemSearch:
    """Finds items in documents. It ignores items with fewer than `shortest` or more than LONGEST words."""

    def __init__(self, items: Sequence[str], shortest: int) -> None:
        """Raises ValueError for a `shortest` of fewer words than a run."""
        if shortest < RUN:
            raise ValueError(f"found items of {shortest} words, expected {RUN} or more")
        self._items = {
            index: item for index, item in enumerate(map(_HashedText, items)) if shortest <= item.length <= LONGEST
        }
        runs = {index: word_hashes.grams(text_words.hashes, RUN).tolist() for index, text_words in self._items.items()}
        frequency = Counter(run for hashes in runs.values() for run in hashes[::RUN])
        self._at: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, item in runs.items():
            # Use the rarest runs, because many questions of one benchmark begin with the same words.
            apart = sorted(range(0, len(item), RUN), key=lambda offset: (frequency[item[offset]], offset))
            for offset in apart[: 1 + self._tolerates(number)]:
                self._at[item[offset]].append((number, offset))
        self._known = np.array(sorted(self._at), np.uint64)

    def __bool__(self) -> bool:
        return bool(self._items)

    def first_in(self, text: str) -> FoundItem | None:
        """The item that occurs first in a document."""
        document = _HashedText(text)
        runs = word_hashes.grams(document.hashes, RUN)
        for index in np.flatnonzero(np.isin(runs, self._known)).tolist():
            for item, offset in self._at[int(runs[index])]:
                span = self._span(item, offset, document, index)
                if span is not None:
                    return FoundItem(item, document.passage(*span))
        return None

    def _tolerates(self, item: int) -> bool:
        return self._items[item].length >= TOLERANT

    def _span(self, item: int, offset: int, document: _HashedText, index: int) -> tuple[int, int] | None:
        """The item's words in the document, if its run at `offset` is at `index` there: by hash, then by spelling."""
        item_words = self._items[item]
        tolerant = self._tolerates(item)
        count = len(item_words.hashes)
        begin = max(index - offset - 1, 0)
        end = min(index - offset + count + 1, len(document.hashes))
        item_hashes = item_words.hashes.tolist()
        document_hashes = document.hashes[begin:end].tolist()
        if _aligned(item_hashes, offset, document_hashes, index - begin, tolerant) is None:
            return None
        span = _aligned(item_words.spelled(0, count), offset, document.spelled(begin, end), index - begin, tolerant)
        if span is None:
            return None
        return begin + span[0], begin + span[1]


def _aligned(item: list[Any], offset: int, document: list[Any], index: int, tolerant: bool) -> tuple[int, int] | None:
    """The words of the document that match the item, if the item's run at `offset` is at `index` there."""
    if item[offset : offset + RUN] != document[index : index + RUN]:
        return None
    before = _reach(item[:offset][::-1], document[:index][::-1])
    behind = _reach(item[offset + RUN :], document[index + RUN :])
    if before is None or behind is None or before[1] + behind[1] > tolerant:
        return None
    return index - before[0], index + RUN + behind[0]


def _reach(item: list[Any], document: list[Any]) -> tuple[int, int] | None:
    """How many words of the document, from its beginning on, are the item's, and with how many changes: at most one.

    A word of the item may be another in the document, be missing there, or have another before it.
    """
    same = next((at for at, pair in enumerate(zip(item, document, strict=False)) if pair[0] != pair[1]), None)
    same = min(len(item), len(document)) if same is None else same
    if same == len(item):
        return same, 0
    for of_item, of_document in ((1, 1), (1, 0), (0, 1)):
        rest = item[same + of_item :]
        at = same + of_document
        if at <= len(document) and document[at : at + len(rest)] == rest:
            return at + len(rest), 1
    return None
