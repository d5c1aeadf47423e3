"""Several ranks under torchrun: the same training, whatever their number."""

from typing import Any

import pytest

from slipway.trainer.record import heartbeat
from slipway.trainer.record.fence import Token
from tests.trainer.conftest import STEPS, Training, read_json


def close(losses: list[tuple[int, float]], expected: list[tuple[int, float]]) -> None:
    """The same but for the rounding of sums in another order."""
    assert [step for step, _ in losses] == [step for step, _ in expected]
    assert [loss for _, loss in losses] == pytest.approx([loss for _, loss in expected], abs=1e-4)


@pytest.mark.slow
def test_two_ranks_have_the_losses_of_one_rank(finished: Training, finished_by_two: Training) -> None:
    close(finished_by_two.losses(), finished.losses())
    validated = [(event["step"], event["loss"]) for event in finished_by_two.events("validated")]
    close(validated, [(event["step"], event["loss"]) for event in finished.events("validated")])


def test_one_rank_writes_and_all_have_a_heartbeat_and_a_random_state(finished_by_two: Training) -> None:
    assert [event["world"] for event in finished_by_two.events("started")] == [2]
    assert len(finished_by_two.events("step")) == STEPS
    assert [beat.rank for beat in heartbeat.read(finished_by_two.store, Token(1))] == [0, 1]
    states = read_json(finished_by_two.checkpoint_file("progress.json"))["random_states"]
    assert len(states) == 2
    assert states[0]["torch"] != states[1]["torch"]


@pytest.mark.slow
def test_two_ranks_that_are_killed_end_bit_for_bit_as_two_that_are_not(
    training: Training, finished_by_two: Training
) -> None:
    training.interrupted(12, ranks=2).completed(ranks=2)
    assert [event["step"] for event in training.events("restored")] == [10]
    assert training.losses() == finished_by_two.losses()
    assert training.tensors_by_name() == finished_by_two.tensors_by_name()


INTERLEAVED: dict[str, Any] = {
    "model": {"layers": 4},
    "layout": {"pipeline": 2, "schedule": "interleaved", "stages_per_rank": 2},
}


@pytest.mark.slow
def test_interleaved_stages_that_are_killed_end_bit_for_bit_as_those_that_are_not(
    training: Training, tmp_path_factory: pytest.TempPathFactory, mark: str
) -> None:
    undisturbed = Training(tmp_path_factory.mktemp("whole"), mark, **INTERLEAVED).completed(ranks=2)
    training.configure(**INTERLEAVED)
    training.interrupted(12, ranks=2).completed(ranks=2)
    assert [event["step"] for event in training.events("restored")] == [10]
    assert training.losses() == undisturbed.losses()
    assert training.tensors_by_name() == undisturbed.tensors_by_name()


@pytest.mark.nightly
def test_a_checkpoint_of_interleaved_stages_goes_on_in_any_layout(
    training: Training, tmp_path_factory: pytest.TempPathFactory, mark: str
) -> None:
    alone = Training(tmp_path_factory.mktemp("alone"), mark, model=INTERLEAVED["model"]).completed()
    training.configure(**INTERLEAVED)
    training.interrupted(6, ranks=2)
    training.configure(model=INTERLEAVED["model"], layout={"shard": "full"})
    training.interrupted(12, ranks=2)
    training.configure(**INTERLEAVED)
    training.completed(ranks=2)
    assert [event["step"] for event in training.events("restored")] == [5, 10]
    close(training.losses(), alone.losses())


@pytest.mark.slow
def test_the_number_of_ranks_may_change_at_every_restart(training: Training, finished: Training) -> None:
    training.interrupted(6, ranks=2).interrupted(12, ranks=1).completed(ranks=2)
    assert [event["world"] for event in training.events("started")] == [2, 1, 2]
    assert [event["step"] for event in training.events("restored")] == [5, 10]
    # Each step's samples are in its loss: other samples would move it by far more than rounding does.
    close(training.losses(), finished.losses())


@pytest.mark.slow
def test_a_batch_with_fewer_sequences_than_ranks_is_refused_with_a_message(training: Training) -> None:
    training.configure(batch={"sequences": 1})
    ended = training.run(ranks=2)
    assert ended.code == 1
    assert "trainer: field batch.sequences: found 1, expected 2 (a sequence for each rank) or more" in ended.err
