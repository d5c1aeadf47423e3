"""The judgement of a batch: what is taken, left out or reported, and when it is enough."""

from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.config.operation import Recovery
from slipway.trainer.elastic import skipped_batches
from slipway.trainer.elastic.batch_judge import BatchJudge, LossSpike
from slipway.trainer.elastic.outliers import FEWEST_LOSSES
from slipway.trainer.record import causes, fence, incidents
from slipway.trainer.record.fence import Token
from slipway.trainer.record.scores import Diverged

pytestmark = pytest.mark.pure

NAN = float("nan")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fence.claim(tmp_path, Token(1), nodes=("local",), cause="a test", by="a test")
    return tmp_path


def judge(store: Path, leads: bool = True, **recovery: Any) -> BatchJudge:
    return BatchJudge(Recovery(**recovery), store, Token(1), leads, lambda *_, **__: None)


def calm(store: Path, **recovery: Any) -> BatchJudge:
    """A judge that has seen losses of about 3."""
    batch_judge = judge(store, **recovery)
    for step in range(1, FEWEST_LOSSES + 1):
        assert batch_judge.accepts(step, 3.0 + 0.01 * (step % 3), 1.0, True)
    return batch_judge


def test_a_batch_with_finite_figures_is_taken(store: Path) -> None:
    assert judge(store).accepts(1, 9.0, 4.0, True)
    assert skipped_batches.read(store) == {}


@pytest.mark.parametrize(("loss", "norm"), [(NAN, 1.0), (1.0, NAN), (float("inf"), 1.0), (1.0, float("inf"))])
def test_one_with_a_figure_that_is_not_finite_is_left_out_and_on_record(store: Path, loss: float, norm: float) -> None:
    batch_judge = judge(store)
    assert not batch_judge.accepts(4, loss, norm, True)
    assert batch_judge.leaves_out(4) and batch_judge.steps_left_out(9) == [4] and batch_judge.steps_left_out(3) == []
    assert skipped_batches.read(store) == {4: 4}


def test_every_rank_judges_alike_and_only_the_first_one_writes(store: Path) -> None:
    assert not judge(store, leads=False).accepts(4, NAN, 1.0, True)
    assert skipped_batches.read(store) == {} and incidents.names(store) == []


def test_a_judge_that_begins_with_what_is_on_record_leaves_out_the_same(store: Path) -> None:
    judge(store).accepts(4, NAN, 1.0, True)
    later = judge(store)
    later.begin(skipped_batches.read(store), ())
    assert later.leaves_out(4) and not later.leaves_out(5)


def test_one_batch_more_than_the_recipe_allows_ends_the_training(store: Path) -> None:
    batch_judge = judge(store, skips=2, skip_steps=10)
    batch_judge.accepts(1, NAN, 1.0, True)
    batch_judge.accepts(5, NAN, 1.0, True)
    with pytest.raises(Diverged, match="of step 9 is nan; batches were left out at steps 1, 5 before, expected 2 "):
        batch_judge.accepts(9, NAN, 1.0, True)
    assert not batch_judge.accepts(11, NAN, 1.0, True), "step 1 is more than 10 steps ago"


def test_a_recipe_that_allows_none_says_so(store: Path) -> None:
    with pytest.raises(Diverged, match="left out never before, expected 0 times"):
        judge(store, skips=0).accepts(3, NAN, 1.0, True)


@pytest.mark.parametrize("answer", ["retry", "stop"])
def test_a_recipe_may_have_the_start_end_instead(store: Path, answer: str) -> None:
    with pytest.raises(Diverged, match=r"^the loss of step 3 is nan$"):
        judge(store, policies={"diverged": answer}).accepts(3, NAN, 1.0, True)
    assert skipped_batches.read(store) == {}


def test_a_batch_that_cannot_be_taken_back_has_the_next_start_leave_out_all_since_the_checkpoint(store: Path) -> None:
    with pytest.raises(Diverged, match="the next start leaves out the batches since the newest checkpoint"):
        judge(store).accepts(3, NAN, 1.0, False)
    assert skipped_batches.read(store) == {1: 3, 2: 3, 3: 3}


def test_batches_that_were_left_out_for_one_reason_count_once(store: Path) -> None:
    batch_judge = judge(store, skips=2)
    batch_judge.begin({1: 3, 2: 3, 3: 3}, ())
    assert not batch_judge.accepts(5, NAN, 1.0, True)
    with pytest.raises(Diverged):
        batch_judge.accepts(6, NAN, 1.0, True)


def test_a_record_that_is_damaged_still_leaves_its_step_out(store: Path) -> None:
    judge(store).accepts(4, NAN, 1.0, True)
    skipped_batches.path(store, 4).write_bytes(b"{")
    assert skipped_batches.read(store) == {4: 4}


def test_a_start_that_was_superseded_decides_nothing(store: Path) -> None:
    batch_judge = judge(store)
    fence.claim(store, Token(2), nodes=("local",), cause="a test", by="a test")
    with pytest.raises(fence.Superseded):
        batch_judge.accepts(4, NAN, 1.0, True)
    assert skipped_batches.read(store) == {}


def test_a_loss_far_above_the_last_ones_is_reported_once_until_it_is_back(store: Path) -> None:
    batch_judge = calm(store)
    for step, loss in ((40, 9.0), (41, 9.0), (42, 3.0), (43, 20.0)):
        assert batch_judge.accepts(step, loss, 1.0, True)
    assert [incidents.read(store, id).step for id in incidents.names(store)] == [39, 42]


def test_a_loss_is_no_spike_before_there_are_enough_to_compare_it_with(store: Path) -> None:
    batch_judge = judge(store)
    for step in range(1, FEWEST_LOSSES):
        batch_judge.accepts(step, 3.0, 1.0, True)
    assert batch_judge.accepts(FEWEST_LOSSES, 300.0, 1.0, True)
    assert incidents.names(store) == []


def test_a_recipe_may_have_spikes_left_out_and_then_no_later_loss_is_held_against_them(store: Path) -> None:
    batch_judge = calm(store, policies={"spike": "skip"})
    assert not batch_judge.accepts(40, 9.0, 1.0, True)
    assert 9.0 not in batch_judge.losses and batch_judge.leaves_out(40)


def test_a_recipe_may_have_a_training_stop_at_a_spike(store: Path) -> None:
    with pytest.raises(LossSpike, match=r"the loss of step 40 is 9\.0000, that of the steps before 3\.01"):
        calm(store, policies={"spike": "stop"}).accepts(40, 9.0, 1.0, True)


def test_a_new_start_goes_on_with_the_losses_of_the_checkpoint(store: Path) -> None:
    later = judge(store)
    later.begin({}, calm(store).losses)
    later.accepts(40, 9.0, 1.0, True)
    [id] = incidents.names(store)
    assert incidents.read(store, id).kind == causes.SPIKE


def test_losses_of_other_data_are_held_against_none_of_those_before(store: Path) -> None:
    batch_judge = calm(store, policies={"spike": "skip"})
    batch_judge.forget_losses()
    assert batch_judge.accepts(40, 9.0, 1.0, True)
    assert batch_judge.losses == [9.0] and incidents.names(store) == []
