"""The end of a job, from the exit codes of its nodes."""

import signal

from slipway.resources.launchers.local.folder import Ending
from slipway.resources.launchers.local.gang import GangEnd, ending
from slipway.resources.launchers.protocol import JobState
from slipway.trainer.record import causes

CANCELLED = GangEnd(JobState.STOPPED, "cancelled", deadline=0)
A_NODE_FAILED = GangEnd(JobState.FAILED, "", deadline=0)
TERM, KILL = signal.SIGTERM, signal.SIGKILL


def test_all_nodes_at_0_is_success():
    assert ending({"a": 0, "b": 0}, {"a": [], "b": []}, None) == Ending(JobState.SUCCEEDED, "")


def test_a_failed_node_is_named_and_nodes_that_were_asked_to_end_are_not():
    codes, sent = {"a": 143, "b": 3}, {"a": [TERM], "b": []}
    assert ending(codes, sent, A_NODE_FAILED) == Ending(JobState.FAILED, "b ended with exit code 3")


def test_all_nodes_that_failed_by_themselves_are_named():
    reason = "a ended with exit code 1; b ended with exit code 139 (SIGSEGV)"
    ended = ending({"a": 1, "b": 139}, {"a": [], "b": []}, None)
    assert ended == Ending(JobState.FAILED, reason, kind=causes.KILLED)


def test_a_node_that_was_asked_to_end_from_outside_was_not_killed():
    assert ending({"a": 143}, {"a": []}, None).kind == causes.UNKNOWN


def test_a_cause_of_a_known_class_gives_its_class():
    store_died = GangEnd(JobState.FAILED, "its rendezvous store died", 0, causes.NETWORK)
    assert ending({"a": 143}, {"a": [TERM]}, store_died).kind == causes.NETWORK


def test_a_node_killed_by_a_foreign_signal_is_lost():
    codes, sent = {"a": 0, "b": -KILL}, {"a": [TERM], "b": []}
    assert ending(codes, sent, A_NODE_FAILED) == Ending(JobState.FAILED, "b was lost: SIGKILL", ("b",))


def test_a_node_that_dies_in_its_grace_by_another_signal_is_lost_too():
    assert ending({"a": -KILL}, {"a": [TERM]}, CANCELLED).lost_nodes == ("a",)


def test_a_node_killed_after_its_grace_is_not_lost():
    reason = "cancelled; a was killed at the end of its grace period"
    assert ending({"a": -KILL}, {"a": [TERM, KILL]}, CANCELLED) == Ending(JobState.STOPPED, reason)


def test_a_cancelled_job_is_stopped_whatever_its_exit_codes():
    codes, sent = {"a": 0, "b": 143, "c": -TERM}, {"a": [TERM], "b": [TERM], "c": [TERM]}
    assert ending(codes, sent, CANCELLED) == Ending(JobState.STOPPED, "cancelled")
