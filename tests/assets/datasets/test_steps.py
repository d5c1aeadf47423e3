"""Steps: the parts of a dataset are made once for the same inputs, and a change makes only its own parts again."""

import json
import time
from pathlib import Path

import pytest

from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import steps
from slipway.trainer.data import shards
from tests.assets.datasets.corpora import recipe_for, write_file


def make_all(recipe, durable) -> tuple[str, list[bool]]:
    """Make the three steps and point at the snapshot; returns which steps were reused."""
    records = [step(recipe, durable) for step in (steps.make_documents, steps.make_tokenizer, steps.make_snapshot)]
    sha256 = records[-1].result["sha256"]
    pointer.point(durable, recipe.name, sha256, "source")
    return sha256, [record.reused for record in records]


def files_under(folder: Path) -> dict[str, tuple[int, int]]:
    stats = {str(path): path.stat() for path in folder.rglob("*") if path.is_file() and "datasets" not in path.parts}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def test_building_an_unchanged_dataset_makes_nothing(corpus, durable):
    first, _ = make_all(recipe_for(corpus), durable)
    before = files_under(durable)
    assert make_all(recipe_for(corpus), durable) == (first, [True, True, True])
    assert files_under(durable) == before


def test_another_shard_size_makes_only_the_snapshot_again(corpus, durable):
    first, _ = make_all(recipe_for(corpus), durable)
    second, reused = make_all(recipe_for(corpus, shard_tokens=600), durable)
    assert reused == [True, True, False]
    assert first != second


def test_another_vocabulary_keeps_the_documents(corpus, durable):
    make_all(recipe_for(corpus), durable)
    assert make_all(recipe_for(corpus, vocab_size=310), durable)[1] == [True, False, False]


def test_another_split_keeps_the_tokenizer(corpus, durable):
    make_all(recipe_for(corpus), durable)
    assert make_all(recipe_for(corpus, validation=0.5), durable)[1] == [False, True, False]


def test_going_back_to_an_earlier_recipe_makes_nothing(corpus, durable):
    first, _ = make_all(recipe_for(corpus), durable)
    make_all(recipe_for(corpus, vocab_size=310), durable)
    assert make_all(recipe_for(corpus), durable) == (first, [True, True, True])


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("documents", [False, True, True]),
        ("tokenizers", [True, False, True]),
        ("snapshots", [True, True, False]),
        ("shards", [True, True, False]),
    ],
)
def test_a_lost_output_is_made_again(corpus, durable, folder, expected):
    first, _ = make_all(recipe_for(corpus), durable)
    before = set(files_under(durable))
    next((durable / folder).iterdir()).unlink()
    assert make_all(recipe_for(corpus), durable) == (first, expected)
    assert set(files_under(durable)) == before


def test_a_truncated_shard_is_made_again(corpus, durable):
    sha256, _ = make_all(recipe_for(corpus), durable)
    shard = shards.read_manifest(durable, sha256).shards()[0]
    shards.shard_path(durable, shard).write_bytes(b"short")
    assert make_all(recipe_for(corpus), durable) == (sha256, [True, True, False])
    assert shards.shard_path(durable, shard).stat().st_size == shard.bytes


def test_a_damaged_memo_makes_every_step_run_again(corpus, durable):
    first, _ = make_all(recipe_for(corpus), durable)
    for path in (durable / "datasets" / "small-corpus" / "steps").iterdir():
        path.write_bytes(b"\xff")
    assert make_all(recipe_for(corpus), durable) == (first, [False, False, False])


def test_documents_made_alone_leave_the_tokenizer_as_it_was(corpus, durable):
    recipe = recipe_for(corpus)
    first, _ = make_all(recipe, durable)
    write_file(corpus / "package0" / "module0.py", "changed " * 100)
    steps.make_documents(recipe, durable)
    second = steps.make_snapshot(recipe, durable).result["sha256"]
    assert shards.read_manifest(durable, first).tokenizer == shards.read_manifest(durable, second).tokenizer


def test_a_snapshot_uses_the_last_complete_documents_after_a_failed_build(corpus, durable):
    recipe = recipe_for(corpus, reading={"quarantine": 0.001})
    first, _ = make_all(recipe, durable)
    (corpus / "bad.txt").write_bytes(b"\xff")
    write_file(corpus / "package0" / "module0.py", "changed " * 100)
    with pytest.raises(ValueError, match="cannot be read"):
        steps.make_documents(recipe, durable)
    next((durable / "shards").iterdir()).unlink()
    assert steps.make_snapshot(recipe, durable).result["sha256"] == first


@pytest.mark.parametrize("step", [steps.make_tokenizer, steps.make_snapshot])
def test_a_step_before_its_documents_says_what_to_do(corpus, durable, step):
    with pytest.raises(ValueError, match="dataset small-corpus: the step documents has not run"):
        step(recipe_for(corpus), durable)


def test_a_new_dataset_is_not_up_to_date_and_asking_makes_nothing(corpus, durable):
    assert steps.up_to_date(recipe_for(corpus), durable) is None
    assert not durable.exists()


def test_a_built_dataset_is_up_to_date(corpus, durable):
    sha256, _ = make_all(recipe_for(corpus), durable)
    assert steps.up_to_date(recipe_for(corpus), durable) == sha256


@pytest.mark.parametrize("change", [{"vocab_size": 310}, {"validation": 0.5}, {"shard_tokens": 600}])
def test_a_changed_recipe_is_not_up_to_date(corpus, durable, change):
    make_all(recipe_for(corpus), durable)
    assert steps.up_to_date(recipe_for(corpus, **change), durable) is None


def test_a_built_snapshot_that_the_dataset_does_not_point_at_is_not_up_to_date(corpus, durable):
    make_all(recipe_for(corpus), durable)
    make_all(recipe_for(corpus, vocab_size=310), durable)
    assert steps.up_to_date(recipe_for(corpus), durable) is None


def test_a_build_waits_until_the_corpus_is_still(corpus, durable, monkeypatch):
    monkeypatch.setattr(sources, "SETTLED_SECONDS", 0.5)
    write_file(corpus / "new.py", "written just now")
    snapshot = make_all(recipe_for(corpus), durable)[0]
    assert time.time() - (corpus / "new.py").stat().st_mtime >= 0.5
    assert steps.up_to_date(recipe_for(corpus), durable) == snapshot


def test_a_record_has_the_inputs_of_its_step(corpus, durable):
    make_all(recipe_for(corpus), durable)
    [path] = (durable / "datasets" / "small-corpus" / "steps").glob("tokenizer-*.json")
    assert json.loads(path.read_bytes())["inputs"]["vocab_size"] == 300
