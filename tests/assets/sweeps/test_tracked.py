"""A sweep in MLflow's words: names that a person can read, and what the run of the sweep says."""

import pytest

from slipway.resources.mlflow.sweeps import trial_name

pytestmark = pytest.mark.pure

WRITTEN = {"optimizer.learning_rate": 0.003, "optimizer.kind": "adamw"}


def test_a_trial_is_named_by_the_parameters_that_differ_from_the_recipe():
    drawn = {"optimizer.learning_rate": 0.010559, "optimizer.kind": "adamw", "optimizer.momentum": 0.9}
    assert trial_name("tiny-abc", 3, drawn, WRITTEN) == "tiny-abc.3 learning_rate=0.0106 momentum=0.9"


def test_the_recipe_as_it_is_written_is_named_so():
    assert trial_name("tiny-abc", 0, WRITTEN, WRITTEN) == "tiny-abc.0 as the recipe is written"


def test_parameters_of_one_last_name_have_their_whole_names():
    drawn = {"optimizer.kind": "muon", "model.kind": "decoder"}
    assert trial_name("s", 1, drawn, {}) == "s.1 optimizer.kind=muon model.kind=decoder"
