"""Checked: which texts of a suite share a passage with the training documents of a snapshot; found out once.

The texts are the documents of a suite, or the questions that its generation tasks have asked.

<durable>/suites/checked/<suite>/<snapshot>.json
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.assets.suites import leaks, suite, texts
from slipway.assets.suites.suite import Example, Suite
from slipway.recipes.suite import HeldOutSection
from slipway.trainer.base import atomic, codec, digest
from slipway.trainer.data import snapshots
from slipway.trainer.data.shards import TextSnapshot

FORMAT = "slipway.suite-check/1"
FOLDER = "checked"


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


def documents(made: Suite, examples: Sequence[Example], section: HeldOutSection) -> ComparedTexts:
    """The documents of a suite, to be compared."""
    held_out = {each.blake3: each.text for each in examples if each.task == suite.DOCUMENTS}
    return ComparedTexts(made.sha256, held_out, section)


def questions(texts: Mapping[str, str], section: HeldOutSection) -> ComparedTexts:
    """Questions by their BLAKE3, to be compared."""
    named = {"questions": sorted(texts), "common": section.common, "share": section.share}
    return ComparedTexts(digest.sha256(atomic.canonical_json(named)), texts, section)


def of(durable: Path, compared: ComparedTexts, snapshot: str) -> SuiteCheck:
    """The comparison with a snapshot; its training documents are read once. Raises ValueError when a shard is gone."""
    if (known := codec.read_if_whole(path(durable, compared.sha256, snapshot), SuiteCheck, FORMAT)) is not None:
        return known
    described, section = snapshots.read(durable, snapshot), compared.section
    training = texts.of_split(durable, described, "train") if isinstance(described, TextSnapshot) else iter(())
    lost = leaks.leaked(list(compared.texts.values()), training, section.common, section.share)
    names = list(compared.texts)
    return keep(durable, SuiteCheck(compared.sha256, snapshot, tuple(names[place] for place in lost)))


def keep(durable: Path, found: SuiteCheck) -> SuiteCheck:
    """Put a comparison on record."""
    codec.replace(path(durable, found.suite, found.snapshot), found, FORMAT)
    return found


def path(durable: Path, made: str, snapshot: str) -> Path:
    return durable / suite.FOLDER / FOLDER / made / f"{snapshot}.json"
