"""Snapshots: every kept document once, equal bytes for equal inputs, and the dataset's pointer."""

import contextlib
import dataclasses
import math
import os

import pytest

from slipway.assets.datasets.building import workers
from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.reading import sorted_rows, sources
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import checks, snapshot, tokenizer
from slipway.resources import warehouse
from slipway.trainer.base import journal, verify
from slipway.trainer.data import shards
from tests.assets.datasets.builds import build, content, hold_none_out, texts_of
from tests.assets.datasets.corpora import make_corpus, recipe_for


def test_the_shards_hold_every_document_once(corpus, durable):
    snapshot_of_corpus = build(recipe_for(corpus), durable)
    every = [text for split in ("train", "validation") for text in texts_of(snapshot_of_corpus, durable, split)]
    assert sorted(every) == sorted(path.read_text() for path in corpus.rglob("*.py"))
    for split in snapshot_of_corpus.splits.values():
        assert split.tokens == sum(shard.tokens for shard in split.shards)
    assert sum(split.text_bytes for split in snapshot_of_corpus.splits.values()) == sum(
        len(text.encode()) for text in every
    )


def test_documents_are_in_the_order_of_the_table(corpus, durable):
    texts = texts_of(build(recipe_for(corpus), durable), durable, "train")
    names = {path.read_text(): str(path) for path in corpus.rglob("*.py")}
    assert [names[text] for text in texts] == sorted(names[text] for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_workers_gives_the_same_bytes(tmp_path, monkeypatch, count):
    corpus = make_corpus(tmp_path / "corpus")
    for name in ("reference", "again"):
        monkeypatch.setattr(workers, "available", lambda name=name: 1 if name == "reference" else count)
        monkeypatch.setattr(workers, "WORTH_A_PROCESS", 0)
        monkeypatch.setattr("slipway.assets.datasets.documents.extraction.UNIT_FILES", 60 if name == "reference" else 7)
        build(recipe_for(corpus), tmp_path / name)
    assert content(tmp_path / "reference") == content(tmp_path / "again")


def test_the_order_in_which_a_folder_names_its_files_changes_nothing(corpus, tmp_path, monkeypatch):
    build(recipe_for(corpus), tmp_path / "one")
    scandir, looked = os.scandir, list[str]()

    @contextlib.contextmanager
    def backwards(path):
        looked.append(path)
        with scandir(path) as entries:
            yield iter(sorted(entries, key=lambda entry: entry.name, reverse=True))

    monkeypatch.setattr(os, "scandir", lambda path: backwards(path) if str(corpus) in str(path) else scandir(path))
    monkeypatch.setattr(sources, "ENTRIES_AT_ONCE", 2)
    monkeypatch.setattr(sorted_rows, "ROWS_AT_ONCE", 7)
    build(recipe_for(corpus), tmp_path / "two")
    assert looked and content(tmp_path / "one") == content(tmp_path / "two")


def test_a_table_that_is_read_in_parts_gives_the_same_shards(corpus, tmp_path, monkeypatch):
    """From nothing, and after a change."""
    one = [build(recipe_for(corpus), tmp_path / "one")]
    monkeypatch.setattr(document_table, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(document_table, "GROUPS_AT_ONCE", 2)
    parts = [build(recipe_for(corpus), tmp_path / "parts")]
    for path in sorted(corpus.rglob("*.py"))[::9]:
        path.write_text(path.read_text() + "# another end\n")
    parts.append(build(recipe_for(corpus), tmp_path / "parts"))
    monkeypatch.undo()
    one.append(build(recipe_for(corpus), tmp_path / "one"))
    assert [part.splits for part in parts] == [part.splits for part in one] and one[0].splits != one[1].splits


def test_the_stored_manifest_is_the_snapshot(corpus, durable):
    stored = build(recipe_for(corpus), durable)
    assert shards.read_manifest(durable, stored.sha256) == stored
    assert stored.source["files"] == 60
    assert stored.documents["kept"] == 60


def test_no_shards_but_the_last_is_short(corpus, durable):
    packed = build(recipe_for(corpus, shard_tokens=500), durable)
    sizes = [shard.tokens for shard in packed.splits["train"].shards]
    assert len(sizes) > 5
    assert all(size >= 250 for size in sizes[:-1])


def test_the_unigram_entropy_is_that_of_the_validation_tokens(corpus, durable):
    validated = build(recipe_for(corpus), durable)
    counts: dict[int, int] = {}
    for shard in validated.splits["validation"].shards:
        for token in shards.open_shard(durable, shard, validated.dtype)[0].tolist():
            counts[token] = counts.get(token, 0) + 1
    total = sum(counts.values())
    expected = -sum(count / total * math.log(count / total) for count in counts.values())
    assert snapshot.unigram_entropy(validated, durable) == pytest.approx(expected)


def test_an_empty_validation_split_has_no_entropy(corpus, durable):
    hold_none_out(durable)
    with pytest.raises(ValueError, match="validation split is empty"):
        snapshot.unigram_entropy(build(recipe_for(corpus, validation=1e-9), durable), durable)


def test_a_dataset_points_at_nothing_before_its_first_snapshot(tmp_path):
    assert pointer.current(tmp_path, "small-corpus") is None


def test_the_history_has_one_line_for_each_change(tmp_path):
    for name in ("a", "a", "b", "a"):
        pointer.point(tmp_path, "small-corpus", name * 64, "source of " + name)
    assert pointer.current(tmp_path, "small-corpus") == "a" * 64
    history = journal.read(tmp_path / "datasets" / "small-corpus" / "history.journal").events
    assert [(event["snapshot"][0], event["source"]) for event in history] == [
        ("a", "source of a"),
        ("b", "source of b"),
        ("a", "source of a"),
    ]


def test_a_whole_snapshot_passes_its_checks(corpus, durable):
    checked = build(recipe_for(corpus), durable)
    table = document_table.path(durable, checked.documents["blake3"])
    encoding = tokenizer.load(durable, checked.tokenizer.sha256)
    assert checks.empty_splits(checked) == []
    assert warehouse.documents_in_both_splits(table) == 0
    assert checks.undecodable(checked, durable, encoding, table) == (20, 0)


def test_an_empty_split_is_found(corpus, durable):
    hold_none_out(durable)
    assert checks.empty_splits(build(recipe_for(corpus, validation=1e-9), durable)) == ["validation"]


def test_tokens_that_decode_to_another_text_are_found(corpus, durable):
    checked = build(recipe_for(corpus), durable)
    table = document_table.path(durable, checked.documents["blake3"])
    other = tokenizer.encoding(tokenizer.train(["other words entirely, other merges"], 280))
    sampled, wrong = checks.undecodable(checked, durable, other, table)
    assert sampled == 20
    assert wrong > 10


def test_a_missing_end_of_document_is_found(corpus, durable):
    checked = build(recipe_for(corpus), durable)
    table = document_table.path(durable, checked.documents["blake3"])
    [*_, last] = shards.documents(durable, checked.splits["train"].shards[0], "uint16")
    cut = shards.TokenSplit(1, len(last) - 1, 2, (shards.write_shard(durable, [last[:-1]], "uint16"),))
    ending = dataclasses.replace(checked, splits={"train": cut})
    encoding = tokenizer.load(durable, checked.tokenizer.sha256)
    assert checks.undecodable(ending, durable, encoding, table) == (1, 1)


def test_shards_are_named_by_their_content(corpus, durable):
    for shard in build(recipe_for(corpus), durable).shards():
        assert verify.measure(shards.shard_path(durable, shard)).blake3 == shard.blake3
