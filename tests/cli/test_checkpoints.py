"""Checkpoints by the command: what was set aside counts again, once it is shown to be whole."""

import json
from pathlib import Path

import pytest

from slipway.resources.home import Home
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.cli import homes
from tests.cli.conftest import Call


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """The home of the command."""
    return homes.home(tmp_path / "home")


@pytest.fixture
def store(home: Home) -> TrainingStore:
    """A training with two checkpoints, of which the first one was set aside by its second incarnation."""
    store = homes.running(home, "tiny", 50, 100)
    first = store.commits()[0]
    store.claim(2, (), "a test", "test")
    store.set_aside(first, "a test said so")
    store.claim(3, (), "a test", "test")
    return store


def steps(store: TrainingStore) -> list[int]:
    return [commit.step for commit in store.commits()]


def test_a_checkpoint_that_was_set_aside_is_named_in_the_list(slipway: Call, store: TrainingStore):
    result = slipway("checkpoints", "list", "tiny")
    assert f"{store.id}@50: set aside: a test said so" in result.err
    assert f"{store.id}@100" in result.out


def test_a_whole_checkpoint_counts_again_and_both_records_are_kept(slipway: Call, store: TrainingStore):
    assert steps(store) == [100]
    result = slipway("checkpoints", "release", f"{store.id}@50")
    assert "is whole on durable and counts again; it was set aside: a test said so" in result.out
    assert steps(store) == [50, 100]
    assert store.read().holders[store.commits()[0].name] == ("durable",)
    records = [json.loads(path.read_bytes()) for path in sorted((store.folder / "taken-back").iterdir())]
    assert sorted(record.get("reason") or record["why"] for record in records) == ["a test said so"] * 3
    assert [record["by"] for record in records if "by" in record]
    [event] = [candidate for candidate in store.events() if candidate["event"] == "released"]
    assert event["reason"] == "a test said so"
    store.claim(4, (), "a test", "test")
    assert steps(store) == [50, 100]


def test_a_damaged_checkpoint_stays_set_aside(slipway: Call, home: Home, store: TrainingStore):
    (home.durable / "checkpoints" / store.id / f"{50:09d}.{Token(1)}" / "weights").write_bytes(b"rust")
    result = slipway("checkpoints", "release", f"{store.id}@50")
    assert result.code == 1 and "weights: found 4 bytes" in result.err
    assert steps(store) == [100]
    assert not (store.folder / "taken-back").exists()


def test_a_checkpoint_that_was_not_set_aside_cannot_be_released(slipway: Call, store: TrainingStore):
    result = slipway("checkpoints", "release", f"{store.id}@100")
    assert result.code == 1 and f"expected one of: {store.id}@50" in result.err


def test_what_was_taken_back_may_be_set_aside_again(slipway: Call, store: TrainingStore):
    for _ in range(2):
        assert slipway("checkpoints", "release", f"{store.id}@50").code == 0
        store.set_aside(store.commits()[0], "a test said so")
    assert steps(store) == [100]
    assert codec.plain(fence.set_aside_reasons(store.folder)) == {f"{50:09d}.{Token(1)}": "a test said so"}
