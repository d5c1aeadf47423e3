"""The memory of the nodes: a generation goes on from what the ranks before it had copied out, whole or not at all."""

import os
from pathlib import Path
from signal import SIGKILL, SIGSTOP

import pytest

from tests.conftest import until
from tests.trainer.conftest import Training
from tests.trainer.elastic.conftest import StartNodes
from tests.trainer.elastic.nodes import Fault, SupervisedNodes, generation, has_stepped

TWO = ("a", "b")
FROZEN = Fault(rank=0, step=8, number=SIGSTOP)
EACH_STEP = {"memory_steps": 1}


@pytest.mark.slow
def test_a_killed_rank_costs_no_step_of_which_memory_holds_the_state(
    training: Training, finished_by_two: Training, start_nodes: StartNodes
) -> None:
    training.configure(storage=EACH_STEP)
    nodes = start_nodes(TWO, Fault(rank=1, step=8, number=SIGKILL))
    assert nodes.ended() == [0, 0], nodes.log_of("b")
    [restored] = training.events("restored")
    assert restored["memory"] and restored["step"] in (6, 7)
    must_be_undisturbed(training, finished_by_two)


@pytest.mark.nightly
def test_all_ranks_may_be_killed_at_once(
    training: Training, finished_by_two: Training, start_nodes: StartNodes
) -> None:
    training.configure(storage=EACH_STEP)
    nodes = start_nodes(TWO, FROZEN)
    training.until_frozen()
    kill_ranks(nodes)
    assert nodes.ended() == [0, 0], nodes.log_of("b")
    [restored] = training.events("restored")
    assert restored["memory"] and restored["step"] in (6, 7, 8)
    must_be_undisturbed(training, finished_by_two)


@pytest.mark.nightly
def test_a_flipped_bit_in_memory_is_found_and_the_checkpoint_on_disk_is_restored(
    training: Training, finished_by_two: Training, start_nodes: StartNodes
) -> None:
    training.configure(storage=EACH_STEP)
    nodes = start_nodes(TWO, FROZEN)
    training.until_frozen()
    until(lambda: [commit.step for commit in training.commits()] == [5], "the checkpoint", 120)
    assert flip_bits(nodes.supervisor("b")) == 3
    kill_ranks(nodes)
    assert nodes.ended() == [0, 0], nodes.log_of("b")
    damaged = training.events("memory_damaged")
    assert damaged and all("found BLAKE3" in event["reason"] for event in damaged)
    [restored] = training.events("restored")
    assert restored["step"] == 5 and "memory" not in restored
    must_be_undisturbed(training, finished_by_two)


@pytest.mark.nightly
def test_what_a_save_left_in_memory_is_restored_though_the_copy_on_disk_is_damaged(
    training: Training, finished_by_two: Training, start_nodes: StartNodes
) -> None:
    nodes = start_nodes(TWO, FROZEN)
    training.until_frozen()
    until(lambda: [commit.step for commit in training.commits()] == [5], "the checkpoint", 120)
    training.checkpoint_file("progress.json", step=5).write_text("{}")
    kill_ranks(nodes)
    assert nodes.ended() == [0, 0], nodes.log_of("b")
    [restored] = training.events("restored")
    assert restored["memory"] and restored["commit"] == training.commits()[0].name
    must_be_undisturbed(training, finished_by_two)


@pytest.mark.nightly
def test_without_the_memory_of_a_lost_node_the_checkpoint_on_disk_is_restored(
    training: Training, start_nodes: StartNodes
) -> None:
    training.configure(storage=EACH_STEP)
    nodes = start_nodes(TWO, FROZEN, least=1)
    training.until_frozen()
    until(lambda: [commit.step for commit in training.commits()] == [5], "the checkpoint", 120)
    nodes.lose("b")
    assert nodes.ended("a") == [0], nodes.log_of("a")
    [restored] = training.events("restored")
    assert restored["step"] == 5 and "memory" not in restored


@pytest.mark.nightly
def test_a_generation_that_is_lost_before_it_saved_leaves_the_memory_to_the_next(
    training: Training, finished_by_two: Training, start_nodes: StartNodes
) -> None:
    training.configure(storage={"memory_steps": 4})
    nodes = start_nodes(TWO, Fault(rank=1, step=10, number=SIGKILL, times=2))
    assert nodes.ended() == [0, 0], nodes.log_of("b")
    assert generation(training) == 2 and has_stepped(training, 1)
    assert [event["step"] for event in training.events("restored")] == [8, 8]
    must_be_undisturbed(training, finished_by_two)


def kill_ranks(nodes: SupervisedNodes) -> None:
    for pid in [*nodes.ranks("a"), *nodes.ranks("b")]:
        os.kill(pid, SIGKILL)


def flip_bits(supervisor: int) -> int:
    """Flip a bit in each buffer of a node that was used; how many there are."""
    n_buffers = 0
    for path in Path(f"/proc/{supervisor}/fd").iterdir():
        if "memfd:checkpoint" in str(path.readlink()) and path.stat().st_size:
            n_buffers += 1
            with open(path, "r+b") as buffer:
                buffer.seek(100)
                byte = buffer.read(1)[0]
                buffer.seek(100)
                buffer.write(bytes([byte ^ 1]))
    return n_buffers


def must_be_undisturbed(training: Training, undisturbed: Training) -> None:
    """With the same steps, weights, and checkpoints but the one that a kill may have come before."""
    assert training.losses() == undisturbed.losses()
    assert training.tensors() == undisturbed.tensors()
    assert {commit.step for commit in undisturbed.commits()} - {commit.step for commit in training.commits()} <= {5}
