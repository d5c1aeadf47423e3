"""Garbage and builds at the same time: what a build refers to meanwhile is not removed."""

import contextlib
import os
import threading
from collections.abc import Callable

import pytest

from slipway.assets.datasets import garbage
from slipway.assets.datasets.documents import document_step
from slipway.assets.datasets.snapshots import pointer
from slipway.trainer.base import lock
from slipway.trainer.data import shards
from tests.assets.datasets.builds import build
from tests.assets.datasets.corpora import recipe_for, write_file

HIDDEN = garbage.ASIDE


@pytest.fixture
def outdated(corpus, durable) -> shards.TextSnapshot:
    """A snapshot that nothing refers to any more; all files are old. The corpus is again as it was for it."""
    path = corpus / "package0" / "module0.py"
    before = path.read_text()
    snapshot = build(recipe_for(corpus, shard_tokens=400), durable)
    write_file(path, "something else " * 60)
    build(recipe_for(corpus, shard_tokens=400), durable)
    write_file(path, before)
    for file in durable.rglob("*.*"):
        os.utime(file, (1, 1))
    return snapshot


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Lets something happen after the garbage has been found and before it is removed."""

    def happens(event: Callable[[], None]) -> None:
        find = garbage._find
        occurred: list[bool] = []

        def changed_meanwhile(*arguments):
            result = find(*arguments)
            if not occurred:
                occurred.append(True)
                event()
            return result

        monkeypatch.setattr(garbage, "_find", changed_meanwhile)

    return happens


def is_complete(snapshot: shards.TextSnapshot, durable) -> bool:
    return all(path.exists() for path in garbage.files_of(durable, snapshot.sha256))


@pytest.mark.parametrize("name", ["another-corpus", "small-corpus"])
def test_a_build_between_finding_and_removing_keeps_all_its_files_where_locks_hold_nothing(
    corpus, durable, outdated, between, monkeypatch, name
):
    """As on a file system whose locks are of one machine, and with a dataset that is built for the first time."""
    recipe = recipe_for(corpus, shard_tokens=400).model_copy(update={"name": name})
    built: list[shards.TextSnapshot] = []
    between(lambda: built.append(build(recipe, durable)))
    monkeypatch.setattr(
        lock, "_locked", lambda folder, kind: contextlib.nullcontext(folder.mkdir(parents=True, exist_ok=True))
    )
    garbage.collect(durable, lambda: [], keep=0)
    assert built[0].shards() == outdated.shards() and is_complete(built[0], durable)
    assert document_step.latest(recipe, durable).result["kept_rows"]
    assert pointer.current(durable, name) == built[0].sha256
    assert not list(durable.rglob(f"{HIDDEN}*"))


def test_a_dataset_that_is_first_built_meanwhile_waits(corpus, durable, outdated, between):
    recipe = recipe_for(corpus, shard_tokens=400).model_copy(update={"name": "another-corpus"})
    built: list[shards.TextSnapshot] = []
    thread = threading.Thread(target=lambda: built.append(build(recipe, durable)))
    between(thread.start)
    garbage.collect(durable, lambda: [], keep=0)
    thread.join()
    assert is_complete(built[0], durable) and built[0].shards() == outdated.shards()


def test_what_a_killed_collection_had_set_aside_is_put_back_if_something_refers_to_it(corpus, durable, outdated):
    current = build(recipe_for(corpus, shard_tokens=400), durable)
    referred, loose = shards.shard_path(durable, current.splits["train"].shards[0]), durable / "shards" / "loose.shard"
    loose.write_bytes(b"nobody's")
    for path in (referred, loose):
        path.rename(path.with_name(HIDDEN + path.name))
        os.utime(path.with_name(HIDDEN + path.name), (1, 1))
    garbage.collect(durable, lambda: [], keep=0)
    assert referred.exists() and not loose.exists()
    assert not list(durable.rglob(f"{HIDDEN}*"))


def test_a_training_that_is_wanted_on_an_old_snapshot_meanwhile_keeps_it_whole(durable, outdated):
    """Its records are no files of a dataset, so that no lock holds them off."""
    references: list[str] = []

    def referred() -> list[str]:
        now = list(references)
        references[:] = [outdated.sha256]  # wanted as soon as the references have been read
        return now

    collected = garbage.collect(durable, referred, keep=0)
    assert is_complete(outdated, durable)
    assert not {str(path) for path in collected.files} & {
        str(path) for path in garbage.files_of(durable, outdated.sha256)
    }
    assert not list(durable.rglob(f"{HIDDEN}*"))


def test_references_that_can_no_longer_be_read_leave_everything_as_it_was(durable, outdated):
    calls: list[bool] = []

    def referred() -> list[str]:
        calls.append(True)
        if len(calls) > 1:
            raise OSError("the registry is away")
        return []

    with pytest.raises(OSError, match="the registry is away"):
        garbage.collect(durable, referred, keep=0)
    assert is_complete(outdated, durable)
    assert not list(durable.rglob(f"{HIDDEN}*"))
