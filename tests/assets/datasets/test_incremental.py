"""Incremental builds: the bytes of a build from nothing, at the cost of the changes alone."""

import random
from pathlib import Path

import pytest

from slipway.assets.datasets.building.build import begin_build
from slipway.assets.datasets.building.build_log import quiet
from slipway.assets.datasets.documents import extraction
from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.snapshots.difference import difference
from slipway.assets.datasets.texts import steps, tokens
from slipway.assets.datasets.texts.documents import TEXT_DOCUMENTS
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.base import verify
from slipway.trainer.data import shards
from tests.assets.datasets.builds import build, content, rebuild, strays, texts_of
from tests.assets.datasets.corpora import make_corpus, recipe_for, write_file


def recipe_of(corpus: Path) -> DatasetRecipe:
    return recipe_for(corpus, shard_tokens=400)


def mutate(corpus: Path, seed: int) -> None:
    """Add, change, remove and rename a few files, some of them to texts of other files."""
    chosen = random.Random(seed)
    paths = sorted(corpus.rglob("*.py"))
    for path in chosen.sample(paths, 3):
        path.unlink()
    remaining = sorted(corpus.rglob("*.py"))
    for path in chosen.sample(remaining, 3):
        write_file(path, f"changed {seed} {path.name} " * chosen.randint(1, 40))
    chosen.choice(remaining).rename(corpus / f"renamed{seed}.py")
    write_file(corpus / f"added{seed}.py", f"added {seed} " * 30)
    write_file(corpus / "package0" / f"copy{seed}.py", chosen.choice(sorted(corpus.rglob("*.py"))).read_text())


@pytest.mark.parametrize("seed", range(4))
def test_an_incremental_build_gives_the_bytes_of_one_from_nothing(corpus, tmp_path, durable, seed):
    recipe = recipe_of(corpus)
    build(recipe, durable)
    for round in range(3):
        mutate(corpus, 10 * seed + round)
        incremental = build(recipe, durable)
        scratch = tmp_path / f"scratch{round}"
        anew = rebuild(recipe, scratch, durable)
        assert incremental.manifest() == anew.manifest()
        assert content(scratch).items() <= content(durable).items()
    assert strays(durable) == []


def test_only_new_documents_are_encoded(corpus, durable, monkeypatch):
    build(recipe_of(corpus), durable)
    write_file(corpus / "new.py", "new text")
    write_file(corpus / "package0" / "module0.py", "changed text")
    encoded: list[str] = []
    encode = tokens._encode

    def recording(task):
        encoded.extend(task.text_places)
        return encode(task)

    monkeypatch.setattr(tokens, "_encode", recording)
    build(recipe_of(corpus), durable)
    assert len(encoded) == 2


def test_a_new_file_changes_only_the_shards_next_to_it(tmp_path, durable):
    corpus = make_corpus(tmp_path / "corpus", files=200)
    before = build(recipe_of(corpus), durable)
    write_file(corpus / "package1" / "added.py", "added " * 20)
    after = build(recipe_of(corpus), durable)
    changes = difference(before, after, durable)
    assert changes.shards > 30
    assert changes.shards - changes.shared_shards <= 3


def test_appended_files_change_only_the_last_shards(tmp_path, durable):
    corpus = make_corpus(tmp_path / "corpus", files=200)
    before = build(recipe_of(corpus), durable)
    make_corpus(corpus / "zzz", files=201)
    after = build(recipe_of(corpus), durable)
    assert set(before.splits["train"].shards[:-2]) <= set(after.splits["train"].shards)


def test_a_snapshot_of_the_file_system_is_recorded_and_the_next_one_read_incrementally(corpus, tmp_path, durable):
    for name in ("monday", "tuesday"):
        (tmp_path / "fs" / ".snap" / name).mkdir(parents=True)
        for path in corpus.rglob("*.py"):
            (tmp_path / "fs" / ".snap" / name / path.name).hardlink_to(path)
    write_file(tmp_path / "fs" / ".snap" / "tuesday" / "new.py", "new")
    first = build(recipe_of(tmp_path / "fs" / ".snap" / "monday"), durable)
    assert first.source["description"] == "a directory in the file system's snapshot monday"
    recipe = recipe_of(tmp_path / "fs" / ".snap" / "tuesday")
    with begin_build(recipe, TEXT_DOCUMENTS, durable, quiet) as running:
        extracts = extraction.extract(running, sources.list_source(recipe))
    assert (extracts.files, extracts.read) == (61, 1)


def test_a_snapshot_keeps_its_parents_tokenizer(corpus, durable):
    before = build(recipe_of(corpus), durable)
    make_corpus(corpus / "more", files=90)
    assert build(recipe_of(corpus), durable).tokenizer == before.tokenizer


def test_a_new_edition_in_the_recipe_trains_a_new_tokenizer(corpus, durable):
    before = build(recipe_of(corpus), durable)
    write_file(corpus / "words.py", "entirely other words that merge otherwise " * 50)
    recipe = recipe_for(corpus, shard_tokens=400, tokenizer={"vocab_size": 300, "edition": 2})
    assert build(recipe, durable).tokenizer != before.tokenizer


def test_documents_of_a_damaged_shard_are_encoded_again_and_not_copied(corpus, tmp_path, durable):
    before = build(recipe_of(corpus), durable)
    path = shards.shard_path(durable, before.splits["train"].shards[1])
    data = bytearray(path.read_bytes())
    data[3] ^= 4
    path.write_bytes(data)
    write_file(corpus / "package0" / "added.py", "added")
    snapshot = build(recipe_of(corpus), durable)
    assert content(durable).items() >= content_of(snapshot, rebuilt(recipe_of(corpus), tmp_path, durable)).items()
    assert texts_of(snapshot, durable, "train") == texts_of(snapshot, tmp_path / "scratch", "train")


def rebuilt(recipe: DatasetRecipe, tmp_path: Path, durable: Path) -> Path:
    rebuild(recipe, tmp_path / "scratch", durable)
    return tmp_path / "scratch"


def content_of(snapshot: shards.TextSnapshot, durable: Path) -> dict[str, bytes]:
    names = {f"shards/{shard.blake3}.shard" for shard in snapshot.shards()}
    return {name: data for name, data in content(durable).items() if name in names}


def test_the_shards_of_the_parent_are_not_hashed_again(corpus, durable, monkeypatch):
    build(recipe_of(corpus), durable)
    write_file(corpus / "new.py", "new text")
    hashed: list[Path] = []
    monkeypatch.setattr(verify, "is_whole", lambda path, content: hashed.append(path))
    build(recipe_of(corpus), durable)
    assert hashed == []


def test_old_snapshots_stay_readable(corpus, durable):
    before = build(recipe_of(corpus), durable)
    texts = texts_of(before, durable, "train")
    mutate(corpus, 1)
    build(recipe_of(corpus), durable)
    assert texts_of(shards.read_manifest(durable, before.sha256), durable, "train") == texts


def test_the_difference_counts_documents_tokens_and_shards(corpus, durable):
    before = build(recipe_of(corpus), durable)
    write_file(corpus / "added.py", "added")
    write_file(corpus / "package0" / "module0.py", "changed")
    (corpus / "package1" / "module1.py").unlink()
    after = build(recipe_of(corpus), durable)
    changes = difference(before, after, durable)
    assert changes.documents is not None
    assert (changes.documents.added, changes.documents.changed, changes.documents.removed) == (1, 1, 1)
    assert changes.documents.same == 58
    assert changes.documents.examples["changed"] == ("package0/module0.py#0",)
    assert changes.tokens[1] == sum(split.tokens for split in after.splits.values())
    assert changes.new_bytes == sum(shard.bytes for shard in set(after.shards()) - set(before.shards()))
    assert changes.same_tokenizer


def test_an_unchanged_dataset_is_up_to_date_and_a_changed_one_is_not(corpus, durable):
    snapshot = build(recipe_of(corpus), durable)
    assert steps.up_to_date(recipe_of(corpus), durable) == snapshot.sha256
    write_file(corpus / "new.py", "new")
    assert steps.up_to_date(recipe_of(corpus), durable) is None
