"""Kept duplicates: which of nearly equal documents is kept is the recipe's rule, and small changes do not change it."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.texts import steps
from slipway.recipes.dataset import DatasetRecipe
from tests.assets.datasets.builds import hold_none_out
from tests.assets.datasets.corpora import recipe_for

READING = {"metadata": {"date": "date"}}


def texts(copies: int, clusters: int = 12) -> list[list[str]]:
    """Clusters of nearly equal texts, all of different lengths."""
    draw = random.Random(3)
    shared = [[f"w{draw.randrange(5000)}" for _ in range(200)] for _ in range(clusters)]
    return [
        [" ".join([*text, *(f"x{index}" for index in range(copy + 1))]) for copy in range(copies)] for text in shared
    ]


def write(folder: Path, named: dict[str, str], dates: dict[str, str] | None = None) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in named.items():
        date = (dates or {}).get(name)
        (folder / f"{name}.jsonl").write_text(json.dumps({"text": text} | ({"date": date} if date else {})))


def recipe(folder: Path, rule: str) -> DatasetRecipe:
    cleaning: dict[str, Any] = {"kept_duplicate": rule, "decontamination": None}
    return recipe_for(folder, validation=1e-9, reading=READING, cleaning=cleaning)


def rows(folder: Path, rule: str) -> dict[str, tuple[str | None, str | None]]:
    """For each document why it is left out, and what is kept instead."""
    durable = folder.parent / "durable"
    if not durable.exists():
        hold_none_out(durable)
    blake3 = steps.make_documents(recipe(folder, rule), durable).result["blake3"]
    table = pq.read_table(document_table.path(durable, blake3)).to_pylist()
    return {row["name"].removesuffix(".jsonl"): (row["removed"], row["because"]) for row in table}


def kept_of(folder: Path, rule: str, named: dict[str, str]) -> set[str]:
    return {named[name] for name, (removed, _) in rows(folder, rule).items() if removed is None}


def named_by(draw: random.Random, clusters: list[list[str]]) -> dict[str, str]:
    every = [text for cluster in clusters for text in cluster]
    draw.shuffle(every)
    return {f"{index:03}": text for index, text in enumerate(every)}


def test_the_longest_of_each_cluster_is_kept_whatever_the_names(tmp_path: Path):
    clusters = texts(4)
    for seed in range(2):
        folder = tmp_path / str(seed) / "corpus"
        folder.parent.mkdir()
        named = named_by(random.Random(seed), clusters)
        write(folder, named)
        assert kept_of(folder, "longest", named) == {cluster[-1] for cluster in clusters}


def test_a_corpus_that_grows_keeps_the_documents_of_all_other_clusters(tmp_path: Path):
    *clusters, new = texts(5)
    shorter = [cluster[:4] for cluster in clusters]
    named = named_by(random.Random(0), shorter)
    write(tmp_path / "corpus", named)
    before = kept_of(tmp_path / "corpus", "longest", named)
    added = {"!new": new[0], "!shorter": shorter[0][0] + " y", "!longer": clusters[1][4]}  # names before all others
    write(tmp_path / "corpus", added)
    after = kept_of(tmp_path / "corpus", "longest", named | added)
    assert after == before - {shorter[1][-1]} | {clusters[1][4], new[0]}


def test_the_newest_is_kept_and_one_without_a_date_is_the_last(tmp_path: Path):
    (cluster,) = texts(4, 1)
    dates = {"0": "2026-01-02T05:00:00+02:00", "1": "2026-01-02T04:00:00Z", "2": "2025-12-31", "3": "no date"}
    write(tmp_path / "corpus", {str(copy): text for copy, text in enumerate(cluster)}, dates)
    removals = rows(tmp_path / "corpus", "newest")
    assert [name for name, (removed, _) in removals.items() if removed is None] == ["1"]
    assert {because for removed, because in removals.values() if removed == "near_duplicate"} == {"1.jsonl#0"}


@pytest.mark.parametrize(("rule", "expected"), [("first", "a"), ("newest", "b")])
def test_of_equal_documents_one_is_kept_by_the_same_rule(tmp_path: Path, rule: str, expected: str):
    write(
        tmp_path / "corpus", {"a": "the same", "b": "the same", "c": "the same"}, {"a": "2026-01-01", "b": "2026-02-01"}
    )
    removals = rows(tmp_path / "corpus", rule)
    assert [name for name, (removed, _) in removals.items() if removed is None] == [expected]
    assert [why for why in removals.values() if why[0]] == [("exact_duplicate", f"{expected}.jsonl#0")] * 2


def test_another_rule_reads_no_file_again(tmp_path: Path):
    write(tmp_path / "corpus", {"a": "one", "b": "two"})
    rows(tmp_path / "corpus", "first")
    before = sorted((tmp_path / "durable" / "segments").iterdir())
    rows(tmp_path / "corpus", "longest")
    assert sorted((tmp_path / "durable" / "segments").iterdir()) == before
