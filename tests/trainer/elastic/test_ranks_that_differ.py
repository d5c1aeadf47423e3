"""Ranks that differ: one is slow, or has other weights; it is named, and what the recipe says follows."""

import pytest

from slipway.trainer.config.operation import Observation
from slipway.trainer.record import causes, fence, incidents, rank_exit
from slipway.trainer.record.incidents import IncidentRecord
from tests.trainer.conftest import Ended, Training, wait


def spoilt(training: Training, faults: str, ranks: int, **environment: str) -> Ended:
    agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "-m"]
    return wait(training.spawn(*agent, "tests.trainer.spoiled", faults, str(training.config), **environment))


def the_incident(training: Training) -> IncidentRecord:
    [id] = incidents.names(training.store)
    return incidents.read(training.store, id)


@pytest.mark.slow
def test_a_slow_rank_is_named_and_its_node_replaced_where_the_recipe_says_so(training: Training) -> None:
    training.configure(run={"steps": 100_000}, recovery={"policies": {"straggler": "replace"}}, validation={"every": 0})
    assert fence.claim(training.store, fence.Token(1), nodes=("local",), cause="a test", by="a test")
    ended = spoilt(training, "slow@0", 2, SLIPWAY_INCARNATION="1")
    assert ended.code == 0, ended.err
    incident = the_incident(training)
    assert (incident.kind, incident.ranks, incident.nodes, incident.survived) == (
        causes.STRAGGLER,
        (1,),
        ("local",),
        True,
    )
    end = rank_exit.decisive(training.store, 1)
    assert end is not None and end.kind == causes.STOP_REQUESTED
    assert end.reason.startswith("asked to stop, as rank 1 on local needs")
    assert training.commits()[-1].step == training.losses()[-1][0]


@pytest.mark.nightly
def test_a_flipped_bit_of_one_ranks_weights_ends_the_start_and_the_incident_names_the_rank(training: Training) -> None:
    training.configure(observation={"compare_steps": 1}, batch={"sequences": 9})
    ended = spoilt(training, "flip@7", 3)
    assert ended.code == 1
    incident = the_incident(training)
    assert (incident.kind, incident.ranks, incident.survived) == (causes.CORRUPTION, (2,), False)
    assert incident.reason.startswith("the weights of ranks 2 (local) differ after step 7 from those of ranks")
    assert incident.action == "starts again on other nodes, where enough are ready"


@pytest.mark.nightly
def test_no_checkpoint_is_taken_of_weights_that_differ_however_seldom_they_are_compared(training: Training) -> None:
    training.configure(observation={"compare_steps": 1_000_000}, batch={"sequences": 9})
    ended = spoilt(training, "flip@7", 3)
    assert ended.code == 1
    assert the_incident(training).reason.startswith("the weights of ranks 2 (local) differ after step 10 from those")
    assert {commit.step for commit in training.commits()} <= {5}, "the save of step 5 may not have been over"


def test_ranks_compare_their_weights_every_so_many_steps_and_before_each_checkpoint() -> None:
    often, never = Observation(compare_steps=20), Observation(compare_steps=0)
    assert [step for step in range(1, 61) if often.compares_after(step, saves=step == 50)] == [20, 40, 50, 60]
    assert not any(never.compares_after(step, saves=True) for step in range(1, 61))
