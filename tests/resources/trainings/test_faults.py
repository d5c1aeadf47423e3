"""Faults: what is wrong with a job that the launcher believes in, and what one that does not run waits for. Pure."""

from dataclasses import replace
from typing import Any

import pytest

from slipway.resources.fleet.protocol import Node, by_name
from slipway.resources.launchers.protocol import JobState, Status
from slipway.resources.trainings.faults import (
    EndVerdict,
    TrainingFault,
    lost,
    outside,
    pre_empted,
    rest,
    stranded,
    stuck,
    too_few,
    verdict,
)
from slipway.resources.trainings.watch import Sight
from slipway.trainer.record import causes, phases
from slipway.trainer.record.heartbeat import RankPlace
from slipway.trainer.record.rank_exit import RankEnd

pytestmark = pytest.mark.pure

ON_TWO = Status(JobState.RUNNING, nodes=("a", "b"))
READY = [Node("a", ready=True), Node("b", ready=True), Node("c", ready=True)]
DEAD = Node("b", ready=False, reason="its kubelet is silent")
CORDONED = Node("b", ready=False, reason="it is cordoned", cordoned=True)


def test_a_job_on_nodes_that_are_ready_has_lost_none():
    assert lost(ON_TWO, by_name(READY)) is None


def test_a_dead_node_under_a_job_is_lost():
    cause = "node b is lost: its kubelet is silent"
    assert lost(ON_TWO, by_name([READY[0], DEAD])) == TrainingFault(
        cause, ("a", "b"), disrupted=True, kind=causes.DISRUPTED
    )


def test_a_node_that_left_the_fleet_is_lost_too():
    fault = lost(ON_TWO, by_name(READY[:1]))
    assert fault is not None and fault.cause == "node b is lost: it left the fleet"


def test_a_cordoned_node_is_not_lost():
    assert lost(ON_TWO, by_name([READY[0], CORDONED])) is None


def test_dead_nodes_that_a_job_is_not_on_are_none_of_its_faults():
    assert lost(Status(JobState.RUNNING, nodes=("a",)), by_name([READY[0], DEAD])) is None


def test_a_job_whose_supervisors_have_nodes_enough_left_goes_on_by_itself():
    fleet = by_name([READY[0], DEAD])
    assert lost(ON_TWO, fleet, members=("a", "b"), least=1) is None
    assert lost(ON_TWO, fleet, members=("a", "b"), least=2) is not None
    assert lost(ON_TWO, fleet, members=("a",), least=1) is None, "it went on without b"
    pending = Status(JobState.PENDING, nodes=("a", "b"))
    assert lost(pending, fleet, members=("a", "b"), least=1) is not None


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED, JobState.MISSING])
def test_a_job_that_does_not_run_loses_no_node(state: JobState):
    assert lost(Status(state, nodes=("b",)), by_name([DEAD])) is None


def test_a_job_that_waits_again_after_its_trainers_had_begun_was_pre_empted():
    suspended = Status(JobState.PENDING, reason="suspended: queue gpus has not admitted it")
    assert pre_empted(suspended, begun=True) == TrainingFault(
        f"pre-empted: {suspended.reason}", (), disrupted=True, kind=causes.DISRUPTED
    )


def test_a_job_that_waits_for_the_first_time_was_not_pre_empted():
    assert pre_empted(Status(JobState.PENDING), begun=False) is None
    assert pre_empted(Status(JobState.RUNNING), begun=True) is None


def test_a_job_that_waits_for_nodes_that_are_not_ready_any_more_is_stranded():
    fault = stranded(Status(JobState.PENDING), ("a", "b"), [READY[0], DEAD, READY[2]], needed=2)
    assert fault == TrainingFault(
        "found 1 ready nodes among those that it may use, expected 2 or more", (), disrupted=True, kind=causes.DISRUPTED
    )


def test_a_job_that_waits_for_occupied_nodes_is_not_stranded():
    assert stranded(Status(JobState.PENDING), ("a", "b"), READY, needed=2) is None
    assert stranded(Status(JobState.RUNNING), ("a", "b"), [DEAD], needed=2) is None


def sight(phase: str, age: float, rank: int = 0, step: int = 3, done: int = 0) -> Sight:
    return Sight(rank, RankPlace(phase, step, done), age)


def fault_of(sights: list[Sight], **deadlines: float) -> TrainingFault | None:
    return stuck(ON_TWO, sights, lambda phase: phases.deadline(phase, 60.0, deadlines))


def test_ranks_that_stay_at_a_step_past_its_deadline_have_hung_and_that_is_their_own_fault():
    assert fault_of([sight("training", 59)]) is None
    cause = "no progress for 61 s (the deadline is 60 s): rank 0 is training after step 3"
    assert fault_of([sight("training", 61)]) == TrainingFault(cause, ("a", "b"), kind=causes.HUNG)


def test_only_a_job_that_runs_has_hung():
    late = [sight("training", 61)]
    assert stuck(Status(JobState.PENDING), late, lambda _: 60.0) is None


def test_one_rank_that_moves_is_a_sign_of_life_of_all():
    assert fault_of([sight("training", 900), sight("training", 5, rank=1)]) is None


@pytest.mark.parametrize(
    "phase", ["staging", "building", "restoring", "compiling", "validating", "committing", "copying"]
)
def test_what_takes_long_beside_the_steps_has_a_deadline_of_its_own(phase: str):
    assert fault_of([sight(phase, 120)]) is None
    assert fault_of([sight(phase, 10_000)]) is not None


def test_the_fault_names_phase_progress_and_deadline():
    fault = fault_of([sight("restoring", 901, rank=3, step=0, done=1_250_000_000)])
    assert fault is not None
    assert (
        fault.cause == "no progress for 901 s (the deadline is 900 s): rank 3 is restoring after step 0, 1.25 GB done"
    )


def test_a_recipe_may_give_a_phase_another_deadline():
    assert fault_of([sight("compiling", 5000)], compiling=7200.0) is None
    assert fault_of([sight("compiling", 50)], compiling=40.0) is not None


def test_no_phase_has_less_time_than_a_step():
    assert stuck(ON_TWO, [sight("staging", 3000)], lambda phase: phases.deadline(phase, 3600.0, {})) is None


def test_before_the_first_heartbeat_the_job_has_time_to_start():
    assert fault_of([Sight(None, RankPlace("starting", 0), 120.0)]) is None
    fault = fault_of([Sight(None, RankPlace("starting", 0), 1201.0)])
    assert fault is not None and fault.cause.endswith("starting, no rank has written a heartbeat")


def test_enough_nodes_are_nothing_to_wait_for():
    assert too_few(READY, needed=3) == ""


def test_the_sentence_about_too_few_nodes_has_the_reasons():
    assert too_few([READY[0], DEAD], needed=2) == (
        "found 1 of the fleet's 2 nodes ready, expected 2 or more (b: its kubelet is silent)"
    )


def test_the_sentence_about_many_missing_nodes_names_some_of_them():
    sentence = too_few([Node(f"n{number}", ready=False, reason="off") for number in range(100)], needed=1)
    assert sentence.endswith("(n0: off; n1: off; n2: off; n3: off; n4: off; and 95 more)")


FAILED = Status(JobState.FAILED, reason="node a ended with exit code 1")


def rank_end(kind: str, reason: str = "a reason") -> RankEnd:
    return RankEnd(1, kind, reason, 57, "b", 0.0)


def test_a_rank_that_was_asked_to_stop_makes_no_failure_of_its_job():
    end = rank_end(causes.STOP_REQUESTED, "asked to stop by SIGTERM")
    assert verdict(True, FAILED, False, end) == EndVerdict(
        "stopped", "b was asked to stop by SIGTERM, at step 57", causes.STOP_REQUESTED, disrupted=True
    )


@pytest.mark.parametrize("kind", [causes.CONFIGURATION, causes.MACHINE, causes.ANSWERED, causes.OUT_OF_MEMORY])
def test_a_failure_has_the_class_that_its_ranks_gave(kind: str):
    assert verdict(True, FAILED, False, rank_end(kind)) == EndVerdict("failed", FAILED.reason, kind)


def test_a_failure_of_which_no_rank_said_anything_is_of_unknown_class():
    assert verdict(True, FAILED, False, None) == EndVerdict("failed", FAILED.reason, causes.UNKNOWN)


def test_what_the_launcher_has_seen_counts_where_the_ranks_have_no_word_or_were_only_asked_to_end():
    store_died = replace(FAILED, kind=causes.NETWORK)
    assert verdict(True, store_died, False, None).kind == causes.NETWORK
    assert verdict(True, store_died, False, rank_end(causes.STOP_REQUESTED)) == EndVerdict(
        "failed", FAILED.reason, causes.NETWORK
    )
    assert verdict(True, store_died, False, rank_end(causes.PROGRAM)).kind == causes.PROGRAM


def test_an_eviction_is_a_disruption_whatever_the_ranks_said():
    end = verdict(True, FAILED, True, rank_end(causes.STOP_REQUESTED))
    assert (end.outcome, end.kind, end.disrupted) == ("failed", causes.DISRUPTED, True)


def test_what_is_not_wanted_any_more_was_stopped():
    assert verdict(False, FAILED, False, rank_end(causes.PROGRAM)).kind == causes.STOP_REQUESTED


def test_a_job_deleted_by_hand_is_a_class_of_its_own():
    assert verdict(True, Status(JobState.MISSING), False, None).kind == causes.DELETED


def test_nobody_need_look_again_for_a_tenth_of_what_is_left_before_all_ranks_can_be_late():
    sights = [Sight(0, RankPlace("training", 5), 20.0), Sight(1, RankPlace("training", 6), 50.0)]
    assert rest(sights, lambda phase: 100.0) == pytest.approx(8.0)
    assert rest([], lambda phase: 100.0) == 0.0


def in_step(rank: int, age: float, section: str = "communication", **more: Any) -> Sight:
    """A rank whose last steps took 0.1 s at most, on a node of its own."""
    usual: dict[str, Any] = {"longest": 0.1, "node": f"node-{rank}"}
    return Sight(rank, RankPlace("training", more.pop("step", 41)), age, section, **(usual | more))


def learned(*sights: Sight, least: float = 10.0) -> TrainingFault | None:
    return stuck(ON_TWO, sights, lambda _: 600.0, least)


def test_where_steps_are_short_a_hang_is_found_after_the_shortest_deadline_of_a_step():
    assert learned(in_step(0, 9.0)) is None
    fault = learned(in_step(0, 11.0))
    assert fault is not None
    assert (
        fault.cause == "no progress for 11 s (the deadline is 10 s): rank 0 on node-0 is in communication after step 41"
    )


def test_slow_is_not_hung():
    assert learned(in_step(0, 49.0, longest=5.0)) is None
    assert learned(in_step(0, 51.0, longest=5.0)) is not None
    assert learned(in_step(0, 599.0, longest=300.0)) is None
    assert learned(in_step(0, 601.0, longest=300.0)) is not None, "the recipe has the last word"


def test_before_a_run_knows_its_steps_the_recipe_alone_has_the_deadline():
    assert learned(in_step(0, 599.0, longest=0.0)) is None


def in_validation(age: float, longest: float) -> Sight:
    return Sight(0, RankPlace("validating", 41, 3), age, "validation", longest, "node-0")


def test_a_validation_that_hangs_is_found_by_how_long_those_before_took():
    assert learned(in_validation(29.0, 3.0)) is None
    fault = learned(in_validation(31.0, 3.0))
    assert fault is not None
    assert fault.cause.startswith("no progress for 31 s (the deadline is 30 s): rank 0 on node-0 is in validation ")
    assert learned(in_validation(9.0, 0.1)) is None, "the recipe has the shortest deadline"
    assert learned(in_validation(599.0, 0.0)) is None, "the first one has the deadline of its phase"
    assert learned(in_validation(601.0, 300.0)) is not None


@pytest.mark.parametrize(
    "phase", ["starting", "staging", "building", "restoring", "compiling", "committing", "copying"]
)
def test_what_comes_once_or_waits_for_a_tier_has_the_deadline_of_its_phase(phase: str):
    assert learned(Sight(0, RankPlace(phase, 41), 599.0, longest=0.1)) is None


def test_data_may_have_to_come_from_far_away():
    waiting, reading = in_step(0, 60.0), in_step(1, 60.0, "data")
    assert learned(waiting, reading) is None
    fault = learned(in_step(0, 601.0), in_step(1, 601.0, "data"))
    assert fault is not None and fault.suspects == ("node-1",)


def test_a_process_that_stands_still_has_no_more_time_than_a_step_whatever_it_did_last():
    fault = learned(in_step(0, 12.0), in_step(1, 12.0, "data", silent=12.0))
    assert fault is not None
    assert fault.cause.endswith(
        "rank 0 on node-0 is in communication after step 41; "
        "not in the exchange of the others: rank 1 on node-1 (silent for 12 s)"
    )
    assert (fault.suspects, fault.ranks, fault.kind) == (("node-1",), (1,), causes.HUNG)


def test_ranks_that_all_live_and_all_wait_in_an_exchange_have_lost_the_network():
    fault = learned(in_step(0, 12.0), in_step(1, 12.0))
    assert fault is not None and (fault.kind, fault.suspects) == (causes.NETWORK, ())
    assert fault.cause.endswith("; all ranks are alive, and all wait in an exchange")
    silent = learned(in_step(0, 12.0, silent=12.0), in_step(1, 12.0, silent=12.0))
    assert silent is not None and silent.kind == causes.HUNG
    alone = learned(in_step(0, 12.0))
    assert alone is not None and alone.kind == causes.HUNG


def test_the_ranks_for_which_the_others_wait_are_those_behind_or_not_in_an_exchange():
    alike = [in_step(rank, 20.0) for rank in range(3)]
    assert outside(alike) == []
    behind = in_step(3, 20.0, step=40)
    assert outside([*alike, behind]) == [behind]
    computing = in_step(3, 20.0, "forward")
    assert outside([*alike, computing]) == [computing]


def test_a_tier_that_does_not_answer_is_no_fault_of_the_program():
    fault = fault_of([sight("restoring", 901)])
    assert fault is not None and fault.kind == causes.STORAGE


def test_nobody_need_look_again_before_a_learned_deadline_can_be_over():
    assert rest([in_step(0, 2.0)], lambda _: 600.0, 10.0) == pytest.approx(0.8)


def test_a_rank_that_may_take_long_for_its_data_is_looked_at_as_often_since_it_may_stand_still_there():
    assert rest([in_step(0, 2.0, "data")], lambda _: 600.0, 10.0) == pytest.approx(0.8)
