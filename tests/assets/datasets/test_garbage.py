"""Garbage: what a snapshot, a training or a model refers to is never removed."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from slipway.assets.datasets import garbage, scrub
from slipway.assets.datasets.building.scratch_dir import building
from slipway.trainer.base import lock
from slipway.trainer.data import shards
from tests.assets.datasets.builds import build, content, texts_of
from tests.assets.datasets.corpora import recipe_for, write_file
from tests.conftest import until


@pytest.fixture
def history(corpus, durable) -> list[shards.TextSnapshot]:
    """Four snapshots of one dataset, each with a change; the files of all of them are old."""
    built = []
    for round in range(4):
        write_file(corpus / "package0" / "module0.py", f"round {round} " * 60)
        built.append(build(recipe_for(corpus, shard_tokens=400), durable))
    for path in durable.rglob("*.*"):
        os.utime(path, (1, 1))
    return built


def snapshots(durable) -> set[str]:
    return {path.stem for path in (durable / "snapshots").iterdir()}


def is_complete(snapshot: shards.TextSnapshot, durable) -> bool:
    return all(path.exists() for path in garbage.files_of(durable, snapshot.sha256))


def test_the_last_snapshots_of_a_dataset_stay(durable, history):
    garbage.collect(durable, lambda: [], keep=1)
    assert snapshots(durable) == {snapshot.sha256 for snapshot in history[2:]}
    assert all(is_complete(snapshot, durable) for snapshot in history[2:])
    assert texts_of(history[3], durable, "train")


def test_a_collection_that_keeps_more_than_an_earlier_one_left_goes_on(durable, history):
    garbage.collect(durable, lambda: [], keep=0)
    garbage.collect(durable, lambda: [], keep=5)
    assert snapshots(durable) == {history[3].sha256}
    assert scrub.scrub(durable, []).damaged == ()


def test_a_snapshot_that_was_set_aside_as_damaged_stops_the_collection(durable, history):
    path = shards.manifest_path(durable, history[2].sha256)
    path.rename(path.with_name(garbage.DAMAGED + path.name))
    before = content(durable)
    with pytest.raises(ValueError, match=r"there is no such snapshot; this snapshot has to stay.*slipway data scrub"):
        garbage.collect(durable, lambda: [], keep=5)
    assert content(durable) == before


def test_a_snapshot_of_a_training_or_a_model_stays(durable, history):
    garbage.collect(durable, lambda: [history[0].sha256], keep=0)
    assert snapshots(durable) == {history[0].sha256, history[3].sha256}
    assert is_complete(history[0], durable)


def test_files_to_which_nothing_refers_are_removed(durable, history):
    before = content(durable)
    collected = garbage.collect(durable, lambda: [], keep=0)
    gone = before.keys() - content(durable).keys()
    assert {durable / name for name in gone} <= set(collected.files)
    assert f"snapshots/{history[0].sha256}.json" in gone
    assert collected.bytes >= sum(len(before[name]) for name in gone)


def test_a_collection_says_for_which_build_it_waits(durable, history):
    lines: list[str] = []
    with contextlib.ExitStack() as build, ThreadPoolExecutor(1) as collection:
        build.enter_context(lock.exclusive(building(durable, history[0].dataset)))
        ended = collection.submit(garbage.collect, durable, lambda: [], 0, log=lines.append)
        until(lambda: lines, "it says so")
        assert lines == [f"waiting for a build of {history[0].dataset}"] and not ended.done()
        build.close()
        assert ended.result().files


def test_a_dry_run_returns_the_same_and_removes_nothing(durable, history):
    before = content(durable)
    collected = garbage.collect(durable, lambda: [], keep=0, dry_run=True)
    assert content(durable) == before
    assert garbage.collect(durable, lambda: [], keep=0) == collected


def test_young_files_stay(durable, history):
    young = shards.shard_path(durable, history[0].splits["train"].shards[0])
    for path in durable.rglob("*.shard"):
        os.utime(path)
    garbage.collect(durable, lambda: [], keep=0)
    assert young.exists()


def test_a_young_manifest_stays_with_all_its_files(durable, history):
    os.utime(shards.manifest_path(durable, history[0].sha256))
    garbage.collect(durable, lambda: [], keep=0)
    assert snapshots(durable) == {history[0].sha256, history[3].sha256}
    assert is_complete(history[0], durable)


def test_the_next_build_continues_from_the_kept_files(corpus, durable, history):
    garbage.collect(durable, lambda: [], keep=0)
    write_file(corpus / "added.py", "added")
    snapshot = build(recipe_for(corpus, shard_tokens=400), durable)
    assert is_complete(snapshot, durable)
    assert len(set(snapshot.shards()) & set(history[3].shards())) > 3


def test_going_back_to_a_collected_snapshot_builds_it_again(corpus, durable, history):
    garbage.collect(durable, lambda: [], keep=0)
    write_file(corpus / "package0" / "module0.py", "round 0 " * 60)
    assert build(recipe_for(corpus, shard_tokens=400), durable) == history[0]
    assert is_complete(history[0], durable)


def test_a_manifest_that_cannot_be_read_stops_the_collection(durable, history):
    shards.manifest_path(durable, history[3].sha256).write_bytes(b"{}")
    before = content(durable)
    with pytest.raises(ValueError, match="found SHA-256"):
        garbage.collect(durable, lambda: [], keep=0)
    assert content(durable) == before


def test_datasets_that_cannot_be_listed_cost_no_file(durable, history):
    before = content(durable)
    (durable / "datasets").rename(durable / "elsewhere")
    with pytest.raises(OSError, match="datasets"):
        garbage.collect(durable, lambda: [], keep=0)
    (durable / "elsewhere").rename(durable / "datasets")
    assert content(durable) == before


def test_a_dataset_without_its_history_keeps_its_current_snapshot(durable, history):
    [journal] = (durable / "datasets").glob("*/history.journal")
    journal.unlink()
    garbage.collect(durable, lambda: [], keep=0)
    assert snapshots(durable) == {history[3].sha256} and is_complete(history[3], durable)


def test_nothing_is_removed_through_a_symbolic_link(durable, history):
    (durable / "snapshots").rename(durable / "precious")
    (durable / "snapshots").symlink_to(durable / "precious")
    with pytest.raises(OSError, match="a symbolic link"):
        garbage.collect(durable, lambda: [], keep=0)
    assert len(list((durable / "precious").iterdir())) == 4
