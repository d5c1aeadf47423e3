"""Removals: what is set aside or pruned counts no more, and a superseded trainer removes nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.trainer.base import atomic
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Superseded, Token
from tests.trainer.record.test_fence import a_commit, claim, names

pytestmark = pytest.mark.pure


def test_a_commit_set_aside_does_not_count_under_this_claim_or_a_later_one(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    for step in (5, 10):
        fence.commit(tmp_path, a_commit(step, 1))
    assert fence.set_aside(tmp_path, a_commit(10, 1), "a flipped bit")
    assert names(tmp_path) == [a_commit(5, 1).name]
    claim(tmp_path, 2)
    assert names(tmp_path) == [a_commit(5, 1).name]


def test_the_first_reason_for_setting_aside_stands(tmp_path: Path) -> None:
    assert fence.set_aside(tmp_path, a_commit(10, 1), "a flipped bit")
    assert not fence.set_aside(tmp_path, a_commit(10, 1), "another reason")
    [record] = (tmp_path / "set-aside").iterdir()
    assert json.loads(record.read_bytes())["reason"] == "a flipped bit"


def test_the_withdrawal_of_a_trainer_that_was_superseded_counts_only_where_the_next_claim_listed_it(
    tmp_path: Path,
) -> None:
    claim(tmp_path, 1)
    for step in (5, 10):
        fence.commit(tmp_path, a_commit(step, 1))
    assert replicas.withdraw(tmp_path, a_commit(5, 1), "durable", "a flipped bit", damaged=True, token=Token(1))
    claim(tmp_path, 2)
    with pytest.raises(Superseded):
        replicas.withdraw(tmp_path, a_commit(10, 1), "durable", "a flipped bit", damaged=True, token=Token(1))
    late = tmp_path / "withdrawn" / a_commit(10, 1).name / "durable.by.000001.0000.json"
    late.parent.mkdir()  # it slept between its look at the claims and its write
    shutil.copyfile(tmp_path / "withdrawn" / a_commit(5, 1).name / late.name, late)
    for _ in range(2):
        tiers_by_commit = replicas.holders(tmp_path, fence.commits(tmp_path))
        assert tiers_by_commit == {a_commit(5, 1).name: (), a_commit(10, 1).name: ("durable",)}
        assert replicas.damage(tmp_path, a_commit(5, 1)) == {"durable": "a flipped bit"}
        assert list(replicas.damaged(tmp_path, "durable")) == [a_commit(5, 1).name]
        claim(tmp_path, 3)
    assert replicas.take_back(tmp_path, a_commit(5, 1).name, "durable")
    assert replicas.holders(tmp_path, [a_commit(5, 1)])[a_commit(5, 1).name] == ("durable",)


@pytest.mark.parametrize("remove", [fence.set_aside, fence.prune])
def test_a_superseded_trainer_removes_no_commit(tmp_path: Path, remove: Callable[..., bool]) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    claim(tmp_path, 2)
    with pytest.raises(Superseded):
        remove(tmp_path, a_commit(5, 1), "damaged", Token(1))
    assert names(tmp_path) == [a_commit(5, 1).name]


@pytest.mark.parametrize("remove", [fence.set_aside, fence.prune])
def test_a_removal_that_a_claim_overtakes_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remove: Callable[..., bool]
) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    write = atomic.create_only

    def meanwhile(path: Path, data: bytes) -> bool:
        monkeypatch.setattr(atomic, "create_only", write)
        claim(tmp_path, 2)
        return write(path, data)

    monkeypatch.setattr(atomic, "create_only", meanwhile)
    with pytest.raises(Superseded):
        remove(tmp_path, a_commit(5, 1), "damaged", Token(1))
    for later in (3, 4):
        assert names(tmp_path) == [a_commit(5, 1).name]
        claim(tmp_path, later)


@pytest.mark.parametrize("remove", [fence.set_aside, fence.prune])
def test_what_a_trainer_removed_under_its_token_stays_removed(tmp_path: Path, remove: Callable[..., bool]) -> None:
    claim(tmp_path, 1)
    for step in (5, 10):
        fence.commit(tmp_path, a_commit(step, 1))
    claim(tmp_path, 2)
    assert remove(tmp_path, a_commit(10, 1), "damaged", Token(2))
    assert not remove(tmp_path, a_commit(10, 1), "damaged", Token(2))
    for later in (3, 4, 5):
        assert names(tmp_path) == [a_commit(5, 1).name]
        claim(tmp_path, later)


def test_setting_aside_can_be_taken_back_after_later_claims(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    claim(tmp_path, 2)
    fence.set_aside(tmp_path, a_commit(5, 1), "the tier was away", Token(2))
    claim(tmp_path, 3)
    assert names(tmp_path) == []
    assert fence.take_back(tmp_path, a_commit(5, 1).name)
    assert names(tmp_path) == [a_commit(5, 1).name]
    assert not fence.take_back(tmp_path, a_commit(5, 1).name)
    assert fence.set_aside(tmp_path, a_commit(5, 1), "damaged after all")
    assert names(tmp_path) == []
