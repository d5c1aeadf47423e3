"""Snapshots: equal inputs give equal bytes, small changes touch few shards, and a dataset points at one."""

import itertools
import math

import numpy as np
import pytest

from assets.datasets import checks, documents, snapshot, tokenizer
from assets.datasets.sources import list_source
from tests.data.corpora import make_corpus, recipe_for, write_file
from trainer import digest, journal, shards


@pytest.fixture
def corpus(tmp_path):
    return make_corpus(tmp_path / "corpus")


@pytest.fixture(scope="module")
def trained() -> bytes:
    return tokenizer.train(["def return while import yield"], 280)


def build(corpus, durable, trained, validation=0.25, train_shards=6) -> shards.Snapshot:
    source = list_source(recipe_for(corpus))
    return snapshot.build(
        dataset="small-corpus",
        recipe_sha256="0" * 64,
        source=source.provenance(),
        table=documents.write(source, validation, durable),
        tokenizer=tokenizer.write(durable, trained),
        encoding=tokenizer.encoding(trained),
        shard_counts={"train": train_shards, "validation": 2},
        durable=durable,
    )


def texts_of(made: shards.Snapshot, durable, trained, split: str) -> list[str]:
    """Every document of a split, decoded from the shards."""
    encoding, found = tokenizer.encoding(trained), []
    for shard in made.splits[split].shards:
        tokens, offsets = shards.open_shard(durable, shard, made.dtype)
        for begin, end in itertools.pairwise(offsets.tolist()):
            assert tokens[end - 1] == made.tokenizer.end_of_document
            found.append(encoding.decode(tokens[begin : end - 1].tolist()))
    return found


def test_the_shards_hold_every_document_once(corpus, tmp_path, trained):
    made = build(corpus, tmp_path, trained)
    path = documents.table_path(tmp_path, made.documents["blake3"])
    for split in ("train", "validation"):
        expected = list(documents.texts(path, split))
        assert sorted(texts_of(made, tmp_path, trained, split)) == sorted(expected)
        assert made.splits[split].documents == len(expected)
        assert made.splits[split].text_bytes == sum(len(text.encode()) for text in expected)


def test_equal_inputs_give_equal_bytes(corpus, tmp_path, trained):
    first, second = build(corpus, tmp_path / "one", trained), build(corpus, tmp_path / "two", trained)
    assert first.manifest() == second.manifest()
    for shard in first.shards():
        data = shards.shard_path(tmp_path / "one", shard).read_bytes()
        assert data == shards.shard_path(tmp_path / "two", shard).read_bytes()


def test_the_stored_manifest_is_the_snapshot(corpus, tmp_path, trained):
    made = build(corpus, tmp_path, trained)
    assert shards.read_manifest(tmp_path, made.sha256) == made
    assert made.source["files"] == 60
    assert made.documents["rows"] == 60


def test_a_changed_file_changes_the_snapshot_but_only_the_shards_it_hashes_to(corpus, tmp_path, trained):
    before = build(corpus, tmp_path, trained)
    write_file(corpus / "package0" / "module0.py", "changed")
    after = build(corpus, tmp_path, trained)
    old, new = set(before.shards()), set(after.shards())
    assert after.sha256 != before.sha256
    assert 1 <= len(new - old) <= 2
    assert len(new & old) >= 6


def test_documents_stand_in_a_shard_by_hash(corpus, tmp_path, trained):
    made = build(corpus, tmp_path, trained, train_shards=1)
    hashes = [digest.of_bytes(text.encode()) for text in texts_of(made, tmp_path, trained, "train")]
    assert hashes == sorted(hashes)


def test_shards_that_no_document_hashes_to_are_not_written(corpus, tmp_path, trained):
    made = build(corpus, tmp_path, trained, train_shards=5000)
    train = made.splits["train"]
    assert len(train.shards) <= train.documents
    assert all(shard.documents for shard in train.shards)


def test_a_damaged_shard_is_repaired_by_building_again(corpus, tmp_path, trained):
    made = build(corpus, tmp_path, trained)
    damaged = shards.shard_path(tmp_path, made.shards()[0])
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    build(corpus, tmp_path, trained)
    assert digest.of_file(damaged) == damaged.stem


def test_the_unigram_entropy_is_that_of_the_validation_tokens(corpus, tmp_path, trained):
    made = build(corpus, tmp_path, trained)
    counts: dict[int, int] = {}
    for shard in made.splits["validation"].shards:
        for token in shards.open_shard(tmp_path, shard, made.dtype)[0].tolist():
            counts[token] = counts.get(token, 0) + 1
    total = sum(counts.values())
    expected = -sum(count / total * math.log(count / total) for count in counts.values())
    assert snapshot.unigram_entropy(made, tmp_path) == pytest.approx(expected)


def test_an_empty_validation_split_has_no_entropy(corpus, tmp_path, trained):
    with pytest.raises(ValueError, match="validation split is empty"):
        snapshot.unigram_entropy(build(corpus, tmp_path, trained, validation=0), tmp_path)


def test_a_dataset_points_at_nothing_before_its_first_snapshot(tmp_path):
    assert snapshot.current(tmp_path, "small-corpus") is None


def test_the_history_has_one_line_for_each_change(tmp_path):
    for name in ("a", "a", "b", "a"):
        snapshot.point(tmp_path, "small-corpus", name * 64, "source of " + name)
    assert snapshot.current(tmp_path, "small-corpus") == "a" * 64
    history = journal.read(tmp_path / "datasets" / "small-corpus" / "history.journal").events
    assert [(event["snapshot"][0], event["source"]) for event in history] == [
        ("a", "source of a"),
        ("b", "source of b"),
        ("a", "source of a"),
    ]


def test_a_whole_snapshot_passes_its_checks(corpus, tmp_path, trained):
    made = build(corpus, tmp_path, trained)
    table = documents.hashes(documents.table_path(tmp_path, made.documents["blake3"]))
    assert checks.empty_splits(made) == []
    assert checks.documents_in_both_splits(made, tmp_path) == 0
    assert checks.undecodable(made, tmp_path, tokenizer.encoding(trained), table) == (20, 0)


def test_an_empty_split_is_found(corpus, tmp_path, trained):
    assert checks.empty_splits(build(corpus, tmp_path, trained, validation=0)) == ["validation"]


def with_splits(made: shards.Snapshot, **splits: shards.Split) -> shards.Snapshot:
    return shards.Snapshot(**{**vars(made), "splits": splits})


def test_documents_in_both_splits_are_found(corpus, tmp_path, trained):
    train = build(corpus, tmp_path, trained).splits["train"]
    leaking = with_splits(build(corpus, tmp_path, trained), train=train, validation=train)
    assert checks.documents_in_both_splits(leaking, tmp_path) == train.documents


def test_tokens_that_decode_to_another_text_are_found(corpus, tmp_path, trained):
    made = build(corpus, tmp_path, trained)
    table = documents.hashes(documents.table_path(tmp_path, made.documents["blake3"]))
    other = tokenizer.encoding(tokenizer.train(["other words entirely, other merges"], 280))
    sampled, wrong = checks.undecodable(made, tmp_path, other, table)
    assert sampled == 20
    assert wrong > 10


def test_a_missing_end_of_document_is_found(tmp_path):
    tokens = np.array([97, 98], np.uint16)
    split = shards.Split(1, 2, 2, (shards.write_shard(tmp_path, [tokens], "uint16"),))
    data = tokenizer.train(["ab"], 257)
    made = shards.Snapshot("d", "", {}, {}, tokenizer.describe(data), "uint16", {"train": split})
    assert checks.undecodable(made, tmp_path, tokenizer.encoding(data), {}) == (1, 1)
