"""Trials: where a trial runs is the sweep's own section, and what is left out is as the training has it."""

from pathlib import Path

import pytest

from assets.sweeps.controller import SearchSubject
from recipes.load import load
from recipes.sweep import SweepRecipe, TrialPlacementSection
from recipes.training import ModelRecipe

SAMPLES = Path(__file__).parents[2] / "recipes" / "samples"


@pytest.fixture
def training() -> ModelRecipe:
    recipe = load(SAMPLES, {}).trainings["tiny-decoder"]
    pods = recipe.placement.kubernetes.model_copy(update={"queue": "night", "priority": "low"})
    nodes = recipe.placement.nodes.model_copy(update={"min": 2, "max": 4})
    placement = recipe.placement.model_copy(update={"nodes": nodes, "ranks_per_node": 8, "kubernetes": pods})
    return recipe.model_copy(update={"placement": placement})


def sweep(**placement: object) -> SweepRecipe:
    section = TrialPlacementSection.model_validate(placement)
    return load(SAMPLES, {}).sweeps["tiny-decoder"].model_copy(update={"placement": section})


def test_a_trial_has_one_node_with_the_ranks_and_the_pods_of_its_training(training: ModelRecipe):
    placed = sweep().trial_of(training).placement
    assert (placed.nodes.min, placed.nodes.max, placed.ranks_per_node) == (1, 1, 8)
    assert placed.kubernetes == training.placement.kubernetes


def test_the_sweep_says_what_is_otherwise_for_its_trials(training: ModelRecipe):
    nodes, pods = {"min": 1, "max": 2}, {"priority": "high", "resources": {"nvidia.com/gpu": "2"}}
    placed = sweep(nodes=nodes, ranks_per_node=2, kubernetes=pods).trial_of(training).placement
    assert (placed.nodes.max, placed.ranks_per_node) == (2, 2)
    assert (placed.kubernetes.queue, placed.kubernetes.priority) == ("night", "high")
    assert placed.kubernetes.resources == {"nvidia.com/gpu": "2"}


def test_where_trials_run_is_no_part_of_what_the_sweep_is(training: ModelRecipe):
    one, other = (SearchSubject(each, training, "a", "b") for each in (sweep(), sweep(ranks_per_node=2)))
    assert one.specification() == other.specification()
