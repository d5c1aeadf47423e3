"""Budgets: which ends in a row without a new checkpoint are too many, and how long a start rests before it."""

import pytest

from slipway.resources.trainings.budgets import (
    LONGEST_HELD_REST,
    LONGEST_REST,
    exceeded_budget,
    exhausted,
    rest_seconds,
)
from slipway.trainer.record import causes

pytestmark = pytest.mark.pure


def spent(*kinds: str, budget: int = 3, **policies: str) -> str:
    return exhausted(kinds, budget, policies)


def test_nothing_is_exhausted_before_the_first_end():
    assert spent() == ""


def test_an_error_of_the_program_is_tried_as_often_as_the_recipe_says():
    assert spent(causes.PROGRAM, causes.PROGRAM) == ""
    assert spent(*3 * [causes.PROGRAM]) == (
        "3 failures of class program in a row without a new checkpoint, expected 2 at most"
    )


def test_a_configuration_that_cannot_be_trained_is_given_up_at_once():
    assert spent(causes.CONFIGURATION, budget=9) == "a failure of class configuration is not retried"


def test_a_fault_of_a_machine_is_tried_three_times_as_often():
    assert spent(*8 * [causes.MACHINE]) == ""
    assert "9 failures of class machine" in spent(*9 * [causes.MACHINE])


def test_what_only_takes_a_training_its_place_costs_it_nothing():
    assert spent(*100 * [causes.DISRUPTED], *20 * [causes.ANSWERED]) == ""


def test_ends_of_many_classes_are_too_many_together():
    mixed = [causes.MACHINE, causes.STORAGE, causes.NETWORK, causes.KILLED]
    assert spent(*2 * mixed) == ""
    assert spent(*2 * mixed, causes.PROGRAM) == "9 failures in a row without a new checkpoint, expected 8 at most"


def test_an_end_without_a_word_counts_as_one_of_the_program():
    assert spent(*3 * [causes.UNKNOWN]).startswith("3 failures of class unknown in a row")


def test_a_class_of_a_newer_version_counts_as_one_without_a_word():
    assert spent("gremlins", "gremlins") == "" != spent(*3 * ["gremlins"])


def test_a_recipe_may_have_a_training_stopped_at_the_first_end_of_a_class():
    assert spent(causes.HUNG) == ""
    assert spent(causes.HUNG, hung=causes.STOP).startswith("a failure of class hung is not retried")


def test_a_start_rests_for_longer_and_longer_after_faults_of_machines_in_a_row():
    rests = [rest_seconds(count * [causes.DISRUPTED]) for count in range(12)]
    assert rests[:6] == [0.0, 0.0, 0.0, 5.0, 10.0, 20.0]
    assert rests[-1] == LONGEST_REST
    assert rest_seconds(9 * [causes.PROGRAM]) == 0.0


MANY = 1000
"""So many ends in a row."""
EVERY = pytest.mark.parametrize("kind", causes.CAUSES, ids=lambda kind: kind or "unknown")


@EVERY
def test_a_training_with_a_checkpoint_is_ended_only_for_what_lies_in_itself(kind: str):
    """The rule, over every class that an end may have."""
    ended = exhausted(MANY * [kind], 3, {}, has_checkpoint=True)
    own = causes.cause(kind).fault in ("configuration", "program", "data")
    counted = causes.cause(kind).factor is not None
    assert bool(ended) is (own and counted), ended


@EVERY
def test_what_does_not_end_a_training_holds_it_back_where_it_is_counted(kind: str):
    assert bool(exceeded_budget(MANY * [kind], 3, {})) is (causes.cause(kind).factor is not None)


@EVERY
def test_a_recipe_may_say_of_any_class_with_such_an_answer_that_it_ends_the_training(kind: str):
    if causes.STOP in causes.cause(kind).answers:
        assert exhausted([kind], 3, {kind: causes.STOP}, has_checkpoint=True)


@pytest.mark.parametrize("kind", [causes.NODE, causes.PLATFORM, causes.DISRUPTED])
def test_a_state_of_a_node_or_of_the_platform_ends_no_first_start_either(kind: str):
    assert exhausted(MANY * [kind], 3, {}, has_checkpoint=False) == ""


def test_faults_of_machines_between_them_do_not_count_towards_the_end_of_a_training_with_a_checkpoint():
    mixed = [causes.MACHINE, causes.PROGRAM, *8 * [causes.STORAGE], causes.PROGRAM]
    assert exhausted(mixed, 3, {}, has_checkpoint=True) == ""
    assert "3 failures of class program" in exhausted([*mixed, causes.PROGRAM], 3, {}, has_checkpoint=True)


def test_one_that_is_held_back_rests_for_half_an_hour_at_most():
    assert rest_seconds(MANY * [causes.STORAGE], LONGEST_HELD_REST) == LONGEST_HELD_REST == 1800.0
