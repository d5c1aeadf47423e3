"""Leaks: which examples of a suite share a passage with a training document, and what was compared already.

A passage is 13 words in a row (GPT-3, Brown et al. 2020, appendix C), by the hash of its words; a text of fewer words
is one passage, which only a document of the same words shares. One that is in more training documents than `common` is
boilerplate, such as a licence, unless passages that are shared make up `share` of the example. Training documents are
read one after the other; what is kept of them is what the examples have too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from slipway.assets.datasets.cleaning.word_hashes import PASSAGE, grams, hashes
from slipway.assets.datasets.texts import tokenizer
from slipway.assets.suites import suite
from slipway.assets.suites.suite import Example, Suite
from slipway.recipes.suite import HeldOutSection
from slipway.trainer.base import atomic, codec, digest
from slipway.trainer.data import shards, snapshots
from slipway.trainer.data.shards import TextSnapshot

Hashes = npt.NDArray[np.uint64]
FORMAT = "slipway.suite-check/1"
FOLDER = "checked"


def leaked(examples: Sequence[str], training: Iterable[str], common: int, share: float) -> list[int]:
    """The places of the examples that leaked, ascending. Takes memory in proportion to the examples alone."""
    passages = [np.unique(_passages(text)) for text in examples]
    known = np.unique(np.concatenate(passages)) if passages else np.empty(0, np.uint64)
    counts = np.zeros(len(known), np.int64)
    for text in training:
        hashes_of_text = np.unique(_passages(text))
        counts[np.searchsorted(known, hashes_of_text[np.isin(hashes_of_text, known)])] += 1
    return [index for index, own in enumerate(passages) if len(own) and _is_leaked(own, known, counts, common, share)]


def of_split(durable: Path, snapshot: TextSnapshot, split: str) -> Iterator[str]:
    """The documents, decoded one after the other, without loss. Raises ValueError when something is gone."""
    encoding = tokenizer.load(durable, snapshot.tokenizer.sha256)
    try:
        for shard in snapshot.splits[split].shards:
            for body in shards.documents(durable, shard, snapshot.dtype):
                yield encoding.decode(body[:-1].tolist())
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename}: the shard is gone") from None


@dataclass(frozen=True)
class ComparedTexts:
    """Texts that no training document may give away."""

    sha256: str
    """Of what they are, and of what counts as a leak."""
    texts: Mapping[str, str]
    """By BLAKE3."""
    section: HeldOutSection
    """Says when a shared passage is a leak."""


@dataclass(frozen=True)
class SuiteCheck:
    """What the comparison of some texts with a snapshot found."""

    suite: str
    """The SHA-256 of the texts: a suite's, whose recipe says what counts as a leak, or that of questions."""
    snapshot: str
    leaked: tuple[str, ...]
    """BLAKE3 of the texts that share a passage with a training document."""


def documents(built: Suite, examples: Sequence[Example], section: HeldOutSection) -> ComparedTexts:
    """The documents of a suite, to be compared."""
    held_out = {example.blake3: example.text for example in examples if example.task == suite.DOCUMENTS}
    return ComparedTexts(built.sha256, held_out, section)


def questions(texts: Mapping[str, str], section: HeldOutSection) -> ComparedTexts:
    """Questions by their BLAKE3, to be compared."""
    named = {"questions": sorted(texts), "common": section.common, "share": section.share}
    return ComparedTexts(digest.sha256(atomic.canonical_json(named)), texts, section)


def of(durable: Path, compared: ComparedTexts, snapshot: str) -> SuiteCheck:
    """The comparison with a snapshot; its training documents are read once. Raises ValueError when a shard is gone."""
    if (known := codec.read_if_whole(path(durable, compared.sha256, snapshot), SuiteCheck, FORMAT)) is not None:
        return known
    described, section = snapshots.read(durable, snapshot), compared.section
    training = of_split(durable, described, "train") if isinstance(described, TextSnapshot) else iter(())
    lost = leaked(list(compared.texts.values()), training, section.common, section.share)
    names = list(compared.texts)
    return keep(durable, SuiteCheck(compared.sha256, snapshot, tuple(names[index] for index in lost)))


def keep(durable: Path, check: SuiteCheck) -> SuiteCheck:
    """Put a comparison on record."""
    codec.replace(path(durable, check.suite, check.snapshot), check, FORMAT)
    return check


def path(durable: Path, suite_sha256: str, snapshot: str) -> Path:
    return durable / suite.FOLDER / FOLDER / suite_sha256 / f"{snapshot}.json"


def _is_leaked(own: Hashes, known: Hashes, counts: npt.NDArray[np.int64], common: int, share: float) -> bool:
    occurrences = counts[np.searchsorted(known, own)]
    return bool(((occurrences > 0) & (occurrences <= common)).any() or (occurrences > 0).sum() >= share * len(own))


def _passages(text: str) -> Hashes:
    """The hashes of every PASSAGE words in a row; of a text with fewer words, the one hash of all of them."""
    word_hashes = hashes(text)
    return grams(word_hashes, min(PASSAGE, max(1, len(word_hashes))))
