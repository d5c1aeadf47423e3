"""Statistics of requests: counts of their texts by length, language and token.

They keep no text, and their size is bounded: powers of two, known languages, ranges of token ids. A sample of the
documents that a version was trained on has the same counts, so that the two can be compared.

    <durable>/serving/<model>/asked/<day>.<tokenizer>.<host>.json   the counts of one front in one day (UTC)
                              trained/<snapshot>.<tokenizer>.json   those of the training's documents
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.serving import languages
from slipway.serving.records import ServingRecords
from slipway.trainer.base import codec, digest, listing, regular_file
from slipway.trainer.start.huggingface import TOKENIZER

FORMAT = "slipway.serving.asked/1"
REQUESTS = "asked"
TRAINED = "trained"
LONGEST = 4096
"""The number of characters, from the beginning of a text, whose tokens and language are counted."""
KEPT_DAYS = 30
NAME = re.compile(r"\d{4}-\d\d-\d\d\.[^.]+\..+")
"""The form of a file's name: day, tokenizer and host."""


@dataclass
class TextCounts:
    """Counts of texts by length, language and token."""

    texts: int = 0
    left_out: int = 0
    """Texts that were left out because the queue was full."""
    lengths: dict[str, int] = field(default_factory=dict)
    """By the largest power of two that does not exceed the text's number of characters."""
    languages: dict[str, int] = field(default_factory=dict)
    """By ISO 639 code, or "unknown"."""
    tokens: dict[str, int] = field(default_factory=dict)
    """By half powers of two of the token's id, because rarer tokens have larger ids."""

    def add(self, text: str, ids: Sequence[int]) -> None:
        """Count a text; `ids` are the tokens of its beginning."""
        self.texts += 1
        _count(self.lengths, str(1 << max(0, len(text).bit_length() - 1)), 1)
        _count(self.languages, languages.natural(text[:LONGEST]), 1)
        for id, times in Counter(ids).items():
            _count(self.tokens, str(int(2 * math.log2(id + 1))), times)

    def join(self, other: "TextCounts") -> None:
        """Add the counts of another instance."""
        self.texts = self.texts + other.texts
        self.left_out = self.left_out + other.left_out
        for counts, other_counts in (
            (self.lengths, other.lengths),
            (self.languages, other.languages),
            (self.tokens, other.tokens),
        ):
            for name, times in other_counts.items():
                _count(counts, name, times)


def _count(counts: dict[str, int], name: str, times: int) -> None:
    counts[name] = counts.get(name, 0) + times


def tokenizer_of(export: Path) -> str:
    """A name for an export's tokenizer: the beginning of its SHA-256. Raises OSError."""
    return digest.sha256(regular_file.read(export / TOKENIZER))[:12]


def today() -> str:
    """The day in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


class RequestRecords:
    """The counts of one model."""

    def __init__(self, durable: Path, model: str) -> None:
        self._folder = ServingRecords(durable).folder / model

    def keep(self, day: str, tokenizer: str, host: str, counts: TextCounts) -> None:
        """Save the counts of one front for a day. Raises OSError."""
        codec.replace(self._folder / REQUESTS / f"{day}.{tokenizer}.{host}.json", counts, FORMAT)

    def counts_of_day(self, day: str, tokenizer: str, host: str) -> TextCounts:
        """The saved counts of one front for a day."""
        path = self._folder / REQUESTS / f"{day}.{tokenizer}.{host}.json"
        return codec.read_if_whole(path, TextCounts, FORMAT) or TextCounts()

    def forget_old(self) -> None:
        """Remove the counts of days older than `KEPT_DAYS`. Raises OSError."""
        oldest = _days_ago(KEPT_DAYS)
        for path, day, _ in self._files():
            if day < oldest:
                path.unlink(missing_ok=True)

    def recent_counts(self, tokenizer: str, days: int) -> TextCounts:
        """The counts of all fronts over the last `days` days, including today. Raises OSError."""
        joined = TextCounts()
        oldest = _days_ago(days)
        for path, day, counted_by in self._files():
            if counted_by == tokenizer and day >= oldest:
                joined.join(codec.read_if_whole(path, TextCounts, FORMAT) or TextCounts())
        return joined

    def keep_trained(self, snapshot: str, tokenizer: str, counts: TextCounts) -> None:
        """Save the counts of a snapshot's documents. Raises OSError."""
        codec.replace(self._folder / TRAINED / f"{snapshot}.{tokenizer}.json", counts, FORMAT)

    def trained(self, snapshot: str, tokenizer: str) -> TextCounts | None:
        """The counts of a snapshot's documents; None if they were not counted."""
        return codec.read_if_whole(self._folder / TRAINED / f"{snapshot}.{tokenizer}.json", TextCounts, FORMAT)

    def _files(self) -> Iterator[tuple[Path, str, str]]:
        """The files of counts, each with its day and tokenizer."""
        folder = self._folder / REQUESTS
        names = listing.files_if_there(folder, ".json")
        for name in listing.fitting(folder, names, lambda name: NAME.fullmatch(name) is not None):
            day, tokenizer, _ = name.split(".", 2)
            yield folder / f"{name}.json", day, tokenizer


def _days_ago(days: int) -> str:
    return (datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=days)).isoformat()
