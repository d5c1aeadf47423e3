"""Naming: a training's name for people says its recipe, when it was wanted, and what is special about it."""

import dataclasses

import pytest

from slipway.resources.trainings.naming import kind_of_cause, name, special
from slipway.resources.trainings.records import BranchRecord, RunPolicy, Specification

pytestmark = pytest.mark.pure
PLAIN = Specification("tiny-decoder", {}, "snapshot", "tokenizer")
RUN_POLICY = RunPolicy(1, 1, 1, no_progress_seconds=120.0, failures_without_checkpoint=3)


def test_one_that_is_as_its_recipe_says_has_its_recipe_and_its_time():
    assert name(PLAIN, RUN_POLICY, 0.1).startswith("tiny-decoder, 1 Jan ") and special(PLAIN, RUN_POLICY) == ""
    assert name(PLAIN, RUN_POLICY, None) == "tiny-decoder, offered"


def test_what_a_person_set_otherwise_is_part_of_the_name():
    run_policy = dataclasses.replace(RUN_POLICY, origin={"given": ["run.steps=3000", "optimizer.beta2=0.9"]})
    assert name(PLAIN, run_policy, 0.1).endswith(", run.steps=3000, optimizer.beta2=0.9")


def test_a_trial_a_branch_and_a_repetition_say_so():
    trial = dataclasses.replace(RUN_POLICY, origin={"sweep": "wide", "trial": 3})
    branch = BranchRecord("tiny-decoder-0", "trainings/x", "c", 80, "m", {"run.seed": 1})
    assert special(PLAIN, trial) == "parameters of trial 3 of wide"
    assert special(dataclasses.replace(PLAIN, branch=branch), RUN_POLICY) == "from tiny-decoder-0@80 with run.seed=1"
    assert special(dataclasses.replace(PLAIN, cause="to be sure"), RUN_POLICY) == "again: to be sure"
    assert (kind_of_cause(PLAIN, trial), kind_of_cause(dataclasses.replace(PLAIN, branch=branch), RUN_POLICY)) == (
        "sweep",
        "branch",
    )


def test_a_training_that_began_by_itself_says_why():
    tick, fall = "2026-01-04T03:00:00+00:00", "quality 0123456789ab"
    scheduled = dataclasses.replace(PLAIN, cause=tick), dataclasses.replace(RUN_POLICY, origin={"schedule": tick})
    fallen = dataclasses.replace(PLAIN, cause=fall), dataclasses.replace(RUN_POLICY, origin={"renewal": "quality"})
    assert (special(*scheduled), kind_of_cause(*scheduled)) == (f"schedule: {tick}", "schedule")
    assert (special(*fallen), kind_of_cause(*fallen)) == (fall, "quality")
    assert kind_of_cause(PLAIN, RUN_POLICY) == ""
