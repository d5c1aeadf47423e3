"""The rendezvous store of a job ends when all who came have left, however short they were there."""

import pytest

from slipway.trainer.elastic.rendezvous_store import LEFT_SECONDS, Visits

pytestmark = pytest.mark.pure


def test_a_store_to_which_nobody_has_come_waits():
    assert not Visits().is_over(clients=0, wrote=False, now=1e6)


def test_a_store_that_all_have_left_ends_after_a_while():
    visits = Visits()
    assert not visits.is_over(clients=2, wrote=True, now=100)
    assert not visits.is_over(clients=0, wrote=True, now=101)
    assert visits.is_over(clients=0, wrote=True, now=100 + LEFT_SECONDS)


def test_an_agent_that_came_and_left_between_two_looks_has_come():
    """Its rank failed within a second: the job is over, and its store must not stay for ever."""
    visits = Visits()
    assert not visits.is_over(clients=0, wrote=True, now=100)
    assert visits.is_over(clients=0, wrote=True, now=100 + LEFT_SECONDS)


def test_a_store_that_is_asked_to_stop_ends_once_nobody_is_there():
    visits = Visits()
    visits.asked_to_stop = True
    assert not visits.is_over(clients=1, wrote=True, now=0)
    assert visits.is_over(clients=0, wrote=True, now=1)


def test_a_store_whose_nodes_may_be_started_anew_waits_longer_unless_they_say_that_the_job_is_over():
    visits = Visits(left_seconds=120)
    assert not visits.is_over(clients=2, wrote=True, now=100)
    assert not visits.is_over(clients=1, wrote=True, now=101, over=True), "somebody still leaves"
    assert not visits.is_over(clients=0, wrote=True, now=150)
    assert visits.is_over(clients=0, wrote=True, now=151, over=True)
    assert visits.is_over(clients=0, wrote=True, now=221)
