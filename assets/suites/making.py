"""Making a suite: once, from the held-out documents of a dataset's snapshot that no training document gives away.

Equal snapshots and recipes give the same suite, byte for byte. A suite's name keeps its meaning when the dataset grows;
only another content of the recipe (such as its `edition`) gives it a new one.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.suites import leaks, suite, tasks
from slipway.assets.suites.leaks import SuiteCheck
from slipway.assets.suites.suite import Example, Suite
from slipway.recipes.suite import HeldOutSection, SuiteRecipe
from slipway.resources import warehouse
from slipway.trainer.data import mixtures, shards
from slipway.trainer.data.shards import TextSnapshot

NAMES = "SELECT language, package FROM read_parquet($table) WHERE split = $split ORDER BY name, number"


def named(durable: Path, recipe: SuiteRecipe) -> Suite:
    """The suite that a recipe means now, made where it is not there. Raises ValueError where it cannot be made."""
    content = recipe.content()
    if (known := suite.named(durable, recipe.name)) is not None and known.recipe == content:
        return suite.read(durable, known.suite)
    current = pointer.current(durable, recipe.dataset)
    if current is None:
        raise ValueError(f"suite {recipe.name}: dataset {recipe.dataset} has no snapshot yet: build it first")
    snapshot = shards.read_manifest(durable, current)
    splits = ("validation",) if recipe.split == "validation" else document_table.SPLITS
    held_out = [document for split in splits for document in documents(durable, snapshot, split, recipe.held_out)]
    training = leaks.of_split(durable, snapshot, "train") if recipe.split == "validation" else iter(())
    lost = set(leaks.leaked([e.text for e in held_out], training, recipe.held_out.common, recipe.held_out.share))
    remaining = [document for index, document in enumerate(held_out) if index not in lost]
    questions = tasks.continuations(remaining, recipe.continuation, recipe.seed) if recipe.continuation else []
    questions += tasks.arithmetic(recipe.arithmetic, recipe.seed) if recipe.arithmetic else []
    built = suite.write(durable, recipe.name, content, snapshot.sha256, [*remaining, *questions], len(lost))
    if recipe.split == "validation":  # what is in the suite now has just been compared with this snapshot
        leaks.keep(durable, SuiteCheck(built.sha256, snapshot.sha256, ()))
    suite.point(durable, recipe.name, built)
    return built


def of_snapshot(durable: Path, snapshot: TextSnapshot, held_out: HeldOutSection) -> Suite:
    """The suite of a snapshot's own validation split, without questions. Raises ValueError where it has none.

    Its documents are those that are left out of the training data by the dataset's recipe; no other ones are here.
    """
    name = f"{snapshot.dataset}-validation"
    return suite.write(durable, name, {}, snapshot.sha256, documents(durable, snapshot, "validation", held_out))


def documents(durable: Path, snapshot: TextSnapshot, split: str, section: HeldOutSection) -> list[Example]:
    """The documents of a split, as examples; of too many, those of the lowest hashes, in the order of the split.

    Raises ValueError when a shard, a tokenizer or the documents table is gone.
    """
    most = section.longest_kilobytes * 1000
    parts = [shards.read_manifest(durable, source) for source in mixtures.sources_of(snapshot)]
    examples = [
        Example(suite.DOCUMENTS, text, source=str(package or ""), language=str(language or ""))
        for part in parts
        for text, (language, package) in zip(
            leaks.of_split(durable, part, split), _about(durable, part, split), strict=False
        )
        if text and len(text.encode()) <= most
    ]
    chosen = sorted({example.blake3 for example in examples})[: section.examples]
    return _once(examples, set(chosen))


def _about(durable: Path, snapshot: TextSnapshot, split: str) -> Iterator[tuple[str, str]]:
    """Language and package of each document of a split; empty ones where they are not known any more."""
    table = document_table.path(durable, snapshot.documents["blake3"])
    with warehouse.connect() as connection:
        about = connection.execute(NAMES, {"table": str(table), "split": split}).fetchall() if table.exists() else []
    return itertools.chain(about, itertools.repeat(("", "")))


def _once(examples: list[Example], chosen: set[str]) -> list[Example]:
    """Of examples with a wanted hash, the first of each, in their order."""
    distinct = []
    for example in examples:
        if example.blake3 in chosen:
            chosen.discard(example.blake3)
            distinct.append(example)
    return distinct
