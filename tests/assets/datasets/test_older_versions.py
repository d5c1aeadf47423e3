"""Snapshots of an older version: a dataset that Slipway 0.1 built is built on, compared, checked and searched.

Its documents table lacks the columns that were added since, and no text of it was cleaned by the same code.
"""

import dataclasses
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets import inspection, takedown_search
from slipway.assets.datasets.snapshots import difference, pointer
from slipway.assets.datasets.snapshots.difference import group_amounts
from slipway.assets.datasets.snapshots.outcomes import own_outcomes
from slipway.assets.datasets.takedown_search import TakedownSelection
from slipway.assets.datasets.texts import checks, tokenizer
from slipway.assets.datasets.texts.documents import TEXT_DOCUMENTS
from slipway.cli import data_lines
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import warehouse
from slipway.trainer.data import shards
from tests.assets.datasets import builds
from tests.operations.upgrade.frozen import home_of_0_1

DATASET = "small-texts"
LONG_AGO = 1_700_000_000


@dataclasses.dataclass(frozen=True)
class Grown:
    """The dataset of 0.1, and what this version made of it after a change of the source."""

    durable: Path
    recipe: DatasetRecipe
    old: shards.TextSnapshot
    new: shards.TextSnapshot


def recipe_for(corpus: Path, **fields) -> DatasetRecipe:
    """The recipe of the frozen home."""
    return DatasetRecipe.model_validate(
        {
            "name": DATASET,
            "source": {"kind": "directory", "path": str(corpus), "include": ("*.txt",)},
            "tokenizer": {"vocab_size": 512},
            "split": {"validation": 0.1},
            "shards": {"tokens": 5000},
            "cleaning": {"near_duplicates": None, "decontamination": None},
            **fields,
        }
    )


def unpacked(folder: Path) -> tuple[Path, Path, shards.TextSnapshot]:
    """The durable tier of 0.1, its corpus, written from its shards, and its snapshot."""
    durable, corpus = home_of_0_1(folder) / "durable", folder / "corpus"
    old = shards.read_manifest(durable, pointer.history(durable, DATASET)[0].sha256)
    rows = pq.read_table(durable / "documents" / f"{old.documents['blake3']}.parquet").to_pylist()
    for split in old.splits:
        names = [row["name"] for row in rows if row["split"] == split]
        for name, text in zip(names, builds.texts_of(old, durable, split), strict=True):
            write(corpus / name, text)
    return durable, corpus, old


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (LONG_AGO, LONG_AGO))


@pytest.fixture(scope="module")
def grown(tmp_path_factory) -> Grown:
    durable, corpus, old = unpacked(tmp_path_factory.mktemp("grown"))
    (corpus / "text-000.txt").unlink()
    write(corpus / "text-001.txt", "quite another text than before")
    write(corpus / "text-100.txt", "a text that 0.1 has not seen")
    recipe = recipe_for(corpus)
    return Grown(durable, recipe, old, builds.build(recipe, durable))


def test_its_tokenizer_its_splits_and_most_of_its_shards_stay(grown: Grown):
    assert grown.new.tokenizer == grown.old.tokenizer
    before, now = (set(builds.texts_of(snapshot, grown.durable, "validation")) for snapshot in (grown.old, grown.new))
    assert len(before & now) >= len(before) - 2
    assert len({shard.blake3 for shard in grown.new.shards()} & {shard.blake3 for shard in grown.old.shards()}) >= 8


def test_a_comparison_names_what_changed_and_nothing_else(grown: Grown):
    changes = difference.difference(grown.old, grown.new, grown.durable)
    assert changes.documents == warehouse.Changes(
        1,
        1,
        1,
        98,
        {"added": ("text-100.txt#0",), "removed": ("text-000.txt#0",), "changed": ("text-001.txt#0",)},
    )
    [language] = changes.groups["language"]
    assert (language.name, language.before.documents, language.now.documents) == ("en", 100, 100)
    assert changes.groups["rule"] == () and changes.same_tokenizer
    back = difference.difference(grown.new, grown.old, grown.durable)
    assert back.documents is not None and (back.documents.added, back.documents.removed) == (1, 1)
    assert all(data_lines.difference(change) for change in (changes, back))


def test_every_check_passes_against_it(grown: Grown):
    outcomes = checks.outcomes(grown.recipe, grown.new, grown.old, grown.durable)
    assert [name for name, outcome in zip(checks.CHECKS, outcomes, strict=True) if not outcome.passed] == []
    assert not any("note" in outcome.metadata for outcome in outcomes)


def test_what_it_loses_against_it_is_found(tmp_path: Path):
    durable, corpus, old = unpacked(tmp_path)
    for path in sorted(corpus.iterdir())[15:]:
        path.unlink()
    recipe = recipe_for(corpus)
    outcomes = checks.outcomes(recipe, builds.build(recipe, durable), old, durable)
    failed = {name for name, outcome in zip(checks.CHECKS, outcomes, strict=True) if not outcome.passed}
    assert failed >= {"no_shrinkage", "languages_are_kept"}


def test_a_query_of_ones_own_reads_a_column_that_it_lacks_as_null(grown: Grown):
    query = "SELECT name FROM parent WHERE url IS NOT NULL OR because IS NOT NULL"
    recipe = grown.recipe.model_copy(
        update={"checks": grown.recipe.checks.model_copy(update={"queries": {"q": query}})}
    )
    [outcome] = own_outcomes(recipe, grown.new, grown.old, grown.durable, TEXT_DOCUMENTS.table)
    assert outcome.passed, outcome


def test_it_is_inspected_and_its_documents_are_found_by_name_text_and_url(grown: Grown):
    lines = data_lines.inspection(inspection.inspect(grown.durable, grown.old))
    assert f"{DATASET} {grown.old.sha256[:12]}: 100 of 100 documents are kept (100.0%)" in lines
    assert (
        sum(
            group_amount.documents
            for group_amount in group_amounts("language", table(grown.durable, grown.old)).values()
        )
        == 100
    )
    [gone] = [f"{row['name']}#0" for row in pq.read_table(table(grown.durable, grown.old)).to_pylist()[:1]]
    matches = takedown_search.matching_documents(
        grown.durable, DATASET, TEXT_DOCUMENTS, TakedownSelection((), (), ("text-003.txt",))
    )
    assert set(takedown_search.snapshots_with(grown.durable, matches, TakedownSelection())) == {
        grown.old.sha256,
        grown.new.sha256,
    }
    assert takedown_search.snapshots_with(grown.durable, [], TakedownSelection(("https://a.example/page",))) == {}
    lost = takedown_search.MatchingDocument(gone, "", "")
    assert set(takedown_search.snapshots_with(grown.durable, [lost], TakedownSelection())) == {grown.old.sha256}
    assert takedown_search.nearly_equal(grown.durable, grown.old.sha256, [gone]) == []


def test_a_takedown_from_it_without_its_cache_of_texts_says_what_to_do_first(tmp_path: Path):
    durable, _, _ = unpacked(tmp_path)
    with pytest.raises(ValueError, match=f"found no file at .*parquet.*first: slipway data build {DATASET}"):
        takedown_search.matching_documents(
            durable, DATASET, TEXT_DOCUMENTS, TakedownSelection(("https://a.example/page",))
        )


def table(durable: Path, snapshot: shards.TextSnapshot) -> Path:
    return durable / "documents" / f"{snapshot.documents['blake3']}.parquet"


def test_its_tokenizer_reads_its_shards(grown: Grown):
    encoding = tokenizer.load(grown.durable, grown.old.tokenizer.sha256)
    assert checks.undecodable(grown.old, grown.durable, encoding, table(grown.durable, grown.old)) == (20, 0)
