"""Interruptions: a training that is killed at any moment ends as if it never had been."""

from pathlib import Path

import pytest

from slipway.trainer.record import fence
from tests.trainer.conftest import STEPS, Training


@pytest.mark.slow
def test_a_training_that_is_killed_again_and_again_ends_bit_for_bit_as_one_that_is_not(
    training: Training, finished: Training
) -> None:
    """In the middle of saves too: `test_exactness`."""
    training.interrupted(1).interrupted(7).interrupted(16).completed()
    assert [event["step"] for event in training.events("restored")] == [5, 15]
    assert len(training.events("started")) == 4
    assert training.losses() == finished.losses()
    assert training.tensors() == finished.tensors()


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Training:
    """A training that was killed after step 12, with half a checkpoint on disk, and taken to its end."""
    training = Training(tmp_path_factory.mktemp("restarted"), mark).interrupted(12)
    half = training.durable / "checkpoints" / "tiny" / ".000000015.000001.0000.ab12"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half of the weig")
    return training.completed()


@pytest.mark.slow
def test_a_restart_begins_at_the_newest_commit_and_does_the_steps_after_it(restarted: Training) -> None:
    (restored,) = restarted.events("restored")
    assert (restored["incarnation"], restored["commit"]) == (2, f"{restored['step']:09d}.000001.0000")
    again = [event["step"] for event in restarted.events("step") if event["incarnation"] == 2]
    assert again == list(range(restored["step"] + 1, STEPS + 1))
    assert [commit.step for commit in restarted.commits()] == [5, 10, 15, 20]


def test_a_restart_draws_no_weights_as_the_checkpoint_brings_them(restarted: Training) -> None:
    (drawn,) = restarted.events("drawn")
    assert drawn["incarnation"] == 1 and drawn["elements"] > 10_000


def test_half_a_checkpoint_of_a_killed_writer_is_gone_after_the_restart(restarted: Training) -> None:
    names = sorted(path.name for path in (restarted.durable / "checkpoints" / "tiny").iterdir())
    assert names == [commit.name for commit in restarted.commits()]


@pytest.mark.slow
def test_a_restart_skips_a_damaged_checkpoint_and_restores_the_one_before(
    training: Training, finished: Training
) -> None:
    newest = training.interrupted(16).commits()[-1]
    flip_a_bit(training.durable / newest.folder / "model-00000.safetensors")
    training.completed()
    assert [event["step"] for event in training.events("restored")] == [newest.step - 5]
    (aside,) = training.events("set_aside")
    assert aside["commit"] == newest.name
    assert "model-00000.safetensors: found BLAKE3" in aside["reason"] and "expected" in aside["reason"]
    assert fence.set_aside_reasons(training.store) == {newest.name: aside["reason"]}
    assert training.commits()[-1].name == "000000020.000002.0000"
    assert training.tensors() == finished.tensors()


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
