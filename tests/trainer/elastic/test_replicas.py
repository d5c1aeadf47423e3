"""Replicas: those that are left go on without a lost node, and take it back between two steps; no step is done twice.

The global batch and the order of the samples stay the same, so that losses differ from those of ranks that nothing
happens to by the rounding of sums in another order alone.
"""

import contextlib
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.record import causes, fence, incidents
from tests.conftest import until
from tests.trainer.conftest import Training
from tests.trainer.elastic.nodes import Fault, SupervisedNodes, generation

pytestmark = pytest.mark.nightly

STEPS, LOST_AFTER, BACK_AFTER = 24, 8, 13
TOLERANCE = 2e-4
"""Of a loss: float32 sums over 7 sequences in another order, and what some twenty steps of AdamW make of that."""
HSDP = {"shard": "hybrid", "shard_ranks": 2}


@dataclass(frozen=True)
class Case:
    """A job that loses its node b."""

    names: str
    layout: dict[str, Any]
    survivors: str
    remaining_nodes: str
    """The nodes that go on."""


DDP_STAYS = Case("abc", {}, "stay", "ac")
DDP_LEAVES = Case("ab", {}, "leave", "a")
HSDP_STAYS = Case("abcd", HSDP, "stay", "cd")


def configured(folder: Path, mark: str, case: Case) -> Training:
    # In a job whose ranks leave, the memory of a lost node is lost too: a checkpoint is there when it is.
    every = 4 if case.survivors == "leave" else 10
    sections: dict[str, Any] = {"run": {"steps": STEPS, "seed": 3}, "checkpoint": {"every": every}}
    return Training(folder, mark, **sections, layout=case.layout, recovery={"survivors": case.survivors})


def lost_and_back(training: Training, case: Case) -> None:
    """Run a training that loses a node after a step, and gets it back after a later one."""
    fault = Fault(rank=0, step=LOST_AFTER, number=signal.SIGSTOP, times=2, later=BACK_AFTER)
    with contextlib.closing(SupervisedNodes(training, tuple(case.names), fault, least=1)) as nodes:
        training.until_frozen()
        if case.survivors == "leave":
            until(training.commits, "a checkpoint")
        nodes.lose("b")
        training.thaw()
        until(lambda: generation(training) == 1, "the generation without it")
        training.until_frozen()
        nodes.bring_back("b")
        alone = len(case.names) - len(case.remaining_nodes)
        until(lambda: nodes.waiting(1) == alone, "those that take no part to wait")
        training.thaw()
        assert set(nodes.ended()) == {0}, [nodes.log_of(name) for name in case.names]


def must_have_done_each_step_once(training: Training, undisturbed: Training) -> None:
    done = [event["step"] for event in training.events("step") if event["seconds"]]
    assert done == list(range(1, STEPS + 1)), "the new rank 0 may put a step on record again, which it did not do"
    losses, expected = training.losses(), undisturbed.losses()
    assert losses[:LOST_AFTER] == expected[:LOST_AFTER], "bit for bit, as long as the ranks are the same"
    assert dict(losses) == pytest.approx(dict(expected), abs=TOLERANCE)


def samples_by_node(event: JournalEvent) -> dict[str, set[int]]:
    """The samples of each batch by node, as the ledger has them."""
    samples: dict[str, set[int]] = {}
    for node, first, end in event["ranks"].values():
        samples.setdefault(node, set()).update(range(first, end))
    return samples


@pytest.mark.parametrize("case", [DDP_STAYS, HSDP_STAYS], ids=["replicas", "replicas of two nodes each"])
def test_the_replicas_that_are_left_go_on_and_take_the_lost_one_back_with_no_step_lost(
    tmp_path: Path, mark: str, case: Case
) -> None:
    undisturbed = configured(tmp_path / "whole", mark, case).completed(ranks=len(case.names))
    training = configured(tmp_path / "lost", mark, case)
    lost_and_back(training, case)
    must_have_done_each_step_once(training, undisturbed)
    assert training.events("restored") == [], "no state came from a disk, nor from the memory of a node"
    assert [event["step"] for event in training.events("handed_over")] == [LOST_AFTER, BACK_AFTER + 1]
    assert [claim.nodes for claim in fence.claims(training.store)] == [
        tuple(case.names),
        tuple(case.remaining_nodes),
        tuple(case.names),
    ]


def test_where_ranks_leave_their_processes_the_memory_of_the_nodes_has_the_step_before_a_node_comes_back(
    tmp_path: Path, mark: str
) -> None:
    """The loss costs the steps since the checkpoint; the return costs none."""
    training = configured(tmp_path, mark, DDP_LEAVES)
    lost_and_back(training, DDP_LEAVES)
    lost, back = training.events("restored")
    assert lost["step"] == 4 and "memory" not in lost
    assert (back["step"], back["memory"]) == (LOST_AFTER + 1, True), "it freezes after the same step again"
    steps = [event["step"] for event in training.events("step")]
    assert steps == [*range(1, LOST_AFTER + 1), *range(5, STEPS + 1)]


def test_it_is_on_record_who_has_which_samples_in_each_generation(tmp_path: Path, mark: str) -> None:
    training = configured(tmp_path, mark, DDP_STAYS)
    lost_and_back(training, DDP_STAYS)
    first, second, third = training.events("divided")
    assert [event["step"] for event in (first, second, third)] == [0, LOST_AFTER, BACK_AFTER + 1]
    assert samples_by_node(first) == samples_by_node(third) == {"a": {0, 1}, "b": {2, 3}, "c": {4, 5, 6}}
    assert samples_by_node(second) == {"a": {0, 1, 2}, "c": {3, 4, 5, 6}}
    [incident] = [incidents.read(training.store, id) for id in incidents.names(training.store)]
    assert (incident.kind, incident.nodes) == (causes.DISRUPTED, ("b",))
    assert incident.action == (
        "generation 1 in the same job: healthy ranks stayed; "
        "of the 7 samples of each step: a 0 to 2, c 3 to 6 (before: a 0 to 1, b 2 to 3, c 4 to 6)"
    )
