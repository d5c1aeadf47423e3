"""Leaks: the examples of a suite that share a passage with a training document, and records of the comparisons.

A passage is 13 words in a row (GPT-3, Brown et al. 2020, appendix C), identified by the hash of its words. A text with
fewer words is one passage, which only a document of the same words shares. A passage in more training documents than
`common` is boilerplate, such as a licence, unless shared passages make up `share` of the example. Training documents
are read one after the other, and only passages that the examples contain stay in memory.
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
    """The indices of the leaked examples, ascending. The memory depends on the examples only."""
    passages = [np.unique(_passages(text)) for text in examples]
    known = np.unique(np.concatenate(passages)) if passages else np.empty(0, np.uint64)
    counts = np.zeros(len(known), np.int64)
    for text in training:
        hashes_of_text = np.unique(_passages(text))
        counts[np.searchsorted(known, hashes_of_text[np.isin(hashes_of_text, known)])] += 1
    return [index for index, own in enumerate(passages) if len(own) and _is_leaked(own, known, counts, common, share)]


def of_split(durable: Path, snapshot: TextSnapshot, split: str) -> Iterator[str]:
    """Decode the documents of a split one after the other. Raises ValueError if a file is gone."""
    encoding = tokenizer.load(durable, snapshot.tokenizer.sha256)
    try:
        for shard in snapshot.splits[split].shards:
            for body in shards.documents(durable, shard, snapshot.dtype):
                yield encoding.decode(body[:-1].tolist())
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename}: the shard is gone") from None


@dataclass(frozen=True)
class ComparedTexts:
    """Texts that no training document may contain."""

    sha256: str
    """The SHA-256 of the texts and of the definition of a leak."""
    texts: Mapping[str, str]
    """By BLAKE3."""
    section: HeldOutSection
    """Defines when a shared passage is a leak."""


@dataclass(frozen=True)
class SuiteCheck:
    """The result of comparing texts with a snapshot."""

    suite: str
    """The SHA-256 of the texts: a suite's, whose recipe defines a leak, or that of questions."""
    snapshot: str
    leaked: tuple[str, ...]
    """BLAKE3 of the texts that share a passage with a training document."""


def documents(built: Suite, examples: Sequence[Example], section: HeldOutSection) -> ComparedTexts:
    """The documents of a suite, for a comparison."""
    held_out = {example.blake3: example.text for example in examples if example.task == suite.DOCUMENTS}
    return ComparedTexts(built.sha256, held_out, section)


def questions(texts: Mapping[str, str], section: HeldOutSection) -> ComparedTexts:
    """Questions by their BLAKE3, for a comparison."""
    named = {"questions": sorted(texts), "common": section.common, "share": section.share}
    return ComparedTexts(digest.sha256(atomic.canonical_json(named)), texts, section)


def of(durable: Path, compared: ComparedTexts, snapshot: str) -> SuiteCheck:
    """The comparison with a snapshot, whose training documents are read once. Raises ValueError if a shard is gone."""
    known = codec.read_if_whole(path(durable, compared.sha256, snapshot), SuiteCheck, FORMAT)
    if known is not None:
        return known
    described = snapshots.read(durable, snapshot)
    section = compared.section
    training = of_split(durable, described, "train") if isinstance(described, TextSnapshot) else iter(())
    lost = leaked(list(compared.texts.values()), training, section.common, section.share)
    names = list(compared.texts)
    return keep(durable, SuiteCheck(compared.sha256, snapshot, tuple(names[index] for index in lost)))


def keep(durable: Path, check: SuiteCheck) -> SuiteCheck:
    """Record a comparison."""
    codec.replace(path(durable, check.suite, check.snapshot), check, FORMAT)
    return check


def path(durable: Path, suite_sha256: str, snapshot: str) -> Path:
    return durable / suite.FOLDER / FOLDER / suite_sha256 / f"{snapshot}.json"


def _is_leaked(own: Hashes, known: Hashes, counts: npt.NDArray[np.int64], common: int, share: float) -> bool:
    occurrences = counts[np.searchsorted(known, own)]
    return bool(((occurrences > 0) & (occurrences <= common)).any() or (occurrences > 0).sum() >= share * len(own))


def _passages(text: str) -> Hashes:
    """The hashes of all runs of PASSAGE words, or one hash for a text with fewer words."""
    word_hashes = hashes(text)
    return grams(word_hashes, min(PASSAGE, max(1, len(word_hashes))))
