"""Survivors: ranks that are well stay in their processes when another one is lost, and give it their state."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.conftest import until
from tests.trainer.conftest import Training
from tests.trainer.elastic.nodes import SupervisedNodes, has_stepped

STEPS, KILLED_AFTER = 40, 8
RUN = {"run": {"steps": STEPS, "seed": 3}, "recovery": {"survivors": "stay"}}


def configured(folder: Path, mark: str, **sections: Any) -> Training:
    return Training(folder, mark, **{**RUN, **sections})


def go_on_without(training: Training, nodes: SupervisedNodes, lost: int) -> tuple[list[int], list[int]]:
    """Kill a rank in the middle of the training, and wait for its end; all ranks' pids before and after."""
    until(lambda: any(e["step"] >= KILLED_AFTER for e in training.events("step")), "the steps", 120)
    names = list(nodes.processes)
    before = [pid for name in names for pid in nodes.ranks(name)]
    os.kill(before[lost], signal.SIGKILL)
    until(lambda: has_stepped(training, 1), "a step of the next generation", 120)
    after = [pid for name in names for pid in nodes.ranks(name)]
    assert set(nodes.ended()) == {0}, [nodes.log_of(name) for name in names]
    nodes.close()
    newest_claim = fence.newest_claim(training.store)
    assert newest_claim is not None and newest_claim.token == Token(1, 1)
    return before, after


def must_have_stayed(before: list[int], after: list[int], lost: int) -> None:
    """After may be the end of the training already, in which case no rank is left."""
    if after:
        assert [pid for at, pid in enumerate(before) if at != lost] == [p for p in after if p in before]


def committed(training: Training, after: int) -> list[int]:
    """The steps of the checkpoints after this one."""
    return [commit.step for commit in training.commits() if commit.step > after]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Training:
    """The same training by two ranks that nothing happens to. Read only."""
    return configured(tmp_path_factory.mktemp("undisturbed"), mark).completed(ranks=2)


@pytest.mark.nightly
def test_a_replica_stays_and_gives_its_state_to_the_rank_that_takes_the_place_of_a_killed_one(
    tmp_path: Path, mark: str, undisturbed: Training
) -> None:
    training = configured(tmp_path, mark)
    before, after = go_on_without(training, SupervisedNodes(training, ("a", "b")), lost=0)
    must_have_stayed(before, after, lost=0)
    [handed] = training.events("handed_over")
    assert handed["step"] >= KILLED_AFTER and handed["givers"] == {"0": 1}
    assert training.events("restored") == []
    assert training.losses() == undisturbed.losses() and len(training.losses()) == STEPS
    assert training.tensors(STEPS) == undisturbed.tensors(STEPS)
    # A checkpoint that was under way when the rank died is given up.
    assert committed(training, handed["step"]) == committed(undisturbed, handed["step"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("names", "ranks", "layout", "lost", "giver"),
    [("abc", 1, "none", 1, 0), ("ab", 2, "hybrid", 1, 3), ("ab", 2, "hybrid", 2, 0)],
)
def test_the_losses_are_bit_for_bit_those_of_ranks_that_nothing_happens_to(
    tmp_path: Path, mark: str, names: str, ranks: int, layout: str, lost: int, giver: int
) -> None:
    sections: dict[str, Any] = {"layout": {"shard": layout}}
    if layout == "hybrid":
        sections["layout"]["shard_ranks"] = 2
    calm_training = configured(tmp_path / "whole", mark, **sections).completed(ranks=ranks * len(names))
    training = configured(tmp_path / "lost", mark, **sections)
    before, after = go_on_without(training, SupervisedNodes(training, tuple(names), ranks=ranks), lost)
    must_have_stayed(before, after, lost)
    [handed] = training.events("handed_over")
    assert handed["givers"] == {str(lost): giver}
    assert training.losses() == calm_training.losses()
    assert training.tensors_by_name(STEPS).keys() == calm_training.tensors_by_name(STEPS).keys()
    assert training.tensors(STEPS) == calm_training.tensors(STEPS)


@pytest.mark.nightly
def test_where_no_replica_holds_a_shard_the_survivors_stay_and_all_restore(tmp_path: Path, mark: str) -> None:
    sections = {"layout": {"shard": "full"}}
    calm_training = configured(tmp_path / "whole", mark, **sections).completed(ranks=2)
    training = configured(tmp_path / "lost", mark, **sections)
    before, after = go_on_without(training, SupervisedNodes(training, ("a", "b")), lost=1)
    must_have_stayed(before, after, lost=1)
    assert training.events("handed_over") == []
    [restored] = training.events("restored")
    assert restored["step"] in (5, 10)
    assert training.losses() == calm_training.losses()
    assert training.tensors(STEPS) == calm_training.tensors(STEPS)
