"""Makes a suite, once, from the held-out documents of a dataset's snapshot that share nothing with training documents.

Equal snapshots and recipes give the same suite, byte for byte. A name refers to the same suite as the dataset grows,
until the content of the recipe changes (such as its `edition`).
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
    """The suite of a recipe, which is made if it does not exist. Raises ValueError if it cannot be made."""
    content = recipe.content()
    known = suite.named(durable, recipe.name)
    if known is not None and known.recipe == content:
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
    if recipe.split == "validation":  # the suite's documents were just compared with this snapshot
        leaks.keep(durable, SuiteCheck(built.sha256, snapshot.sha256, ()))
    suite.point(durable, recipe.name, built)
    return built


def of_snapshot(durable: Path, snapshot: TextSnapshot, held_out: HeldOutSection) -> Suite:
    """The suite of a snapshot's own validation split, without questions. Raises ValueError if the split is empty."""
    name = f"{snapshot.dataset}-validation"
    return suite.write(durable, name, {}, snapshot.sha256, documents(durable, snapshot, "validation", held_out))


def documents(durable: Path, snapshot: TextSnapshot, split: str, section: HeldOutSection) -> list[Example]:
    """The documents of a split as examples, in its order. If there are too many, those with the lowest hashes.

    Raises ValueError if a shard, a tokenizer or the documents table is gone.
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
    """Language and package of each document of a split; empty if they are not known any more."""
    table = document_table.path(durable, snapshot.documents["blake3"])
    with warehouse.connect() as connection:
        about = connection.execute(NAMES, {"table": str(table), "split": split}).fetchall() if table.exists() else []
    return itertools.chain(about, itertools.repeat(("", "")))


def _once(examples: list[Example], chosen: set[str]) -> list[Example]:
    """The first example with each of the chosen hashes, in order."""
    distinct = []
    for example in examples:
        if example.blake3 in chosen:
            chosen.discard(example.blake3)
            distinct.append(example)
    return distinct
