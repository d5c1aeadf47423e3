"""Checked: which documents of a suite share a passage with the training documents of a snapshot; found out once.

<durable>/suites/checked/<suite>/<snapshot>.json
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assets.suites import leaks, suite, texts
from assets.suites.suite import Example, Suite
from recipes.suite import HeldOutSection
from trainer.base import codec
from trainer.data import snapshots
from trainer.data.shards import TextSnapshot

FORMAT = "slipway.suite-check/1"
FOLDER = "checked"


@dataclass(frozen=True)
class SuiteCheck:
    """What the comparison of a suite with a snapshot found; the suite's recipe says what counts as a leak."""

    suite: str
    snapshot: str
    leaked: tuple[str, ...]
    """BLAKE3 of the examples that share a passage with a training document."""


def of(durable: Path, made: Suite, examples: Sequence[Example], snapshot: str, section: HeldOutSection) -> SuiteCheck:
    """The comparison with a snapshot; its training documents are read once. Raises ValueError when a shard is gone."""
    if (known := codec.read_if_whole(path(durable, made.sha256, snapshot), SuiteCheck, FORMAT)) is not None:
        return known
    described = snapshots.read(durable, snapshot)
    held_out = [each for each in examples if each.task == suite.DOCUMENTS]
    training = texts.of_split(durable, described, "train") if isinstance(described, TextSnapshot) else iter(())
    lost = leaks.leaked([each.text for each in held_out], training, section.common, section.share)
    return keep(durable, SuiteCheck(made.sha256, snapshot, tuple(held_out[place].blake3 for place in lost)))


def keep(durable: Path, found: SuiteCheck) -> SuiteCheck:
    """Put a comparison on record."""
    codec.replace(path(durable, found.suite, found.snapshot), found, FORMAT)
    return found


def path(durable: Path, made: str, snapshot: str) -> Path:
    return durable / suite.FOLDER / FOLDER / made / f"{snapshot}.json"
