"""Trials: where a trial runs is the sweep's own section, and what is left out is as the training has it."""

from pathlib import Path

import pytest

from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.recipes.domain import Domain
from slipway.recipes.load import load
from slipway.recipes.sweep import SweepRecipe, TrialPlacementSection
from slipway.recipes.training import ModelRecipe

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
    one, other = (SearchSubject(recipe, training, "a", "b") for recipe in (sweep(), sweep(ranks_per_node=2)))
    assert one.specification() == other.specification()


def test_what_a_sweep_may_spend_is_no_part_of_what_it_is(training: ModelRecipe):
    more = sweep().model_copy(update={"trials": 99, "parallel": 7})
    one, other = (SearchSubject(recipe, training, "a", "b") for recipe in (sweep(), more))
    assert one.specification() == other.specification()
    assert (one.budget().trials, other.budget().trials) == (8, 99)


def test_another_scheduler_is_another_sweep(training: ModelRecipe):
    scheduler = load(SAMPLES, {}).sweeps["tiny-decoder"].scheduler.model_copy(update={"eta": 3})
    changed = sweep().model_copy(update={"scheduler": scheduler})
    one, other = (SearchSubject(recipe, training, "a", "b") for recipe in (sweep(), changed))
    assert one.specification() != other.specification()


def test_trial_0_has_the_parameters_of_the_recipe_as_it_is_written(training: ModelRecipe):
    written = SearchSubject(sweep(), training, "a", "b").opened("x").written
    assert written["optimizer.beta2"] == training.optimizer.beta2


@pytest.mark.parametrize(
    ("choices", "written"),
    [
        ([{"shard": "full"}, {"activations": "keep"}], {"activations": "keep"}),
        ([{"shard": "full"}, {"tensor": 2}], {"shard": "none", "tensor": 1}),
    ],
)
def test_trial_0_has_a_section_as_the_space_writes_it(
    training: ModelRecipe, choices: list[dict[str, object]], written: dict[str, object]
):
    """It is the choice that the recipe agrees with, so that samplers learn from it and a grid does not repeat it."""
    searched = sweep().model_copy(update={"space": {"layout": Domain(choice=tuple(choices))}})
    assert SearchSubject(searched, training, "a", "b").opened("x").written == {"layout": written}


def test_trial_0_lacks_a_parameter_whose_condition_its_section_does_not_meet(training: ModelRecipe):
    layouts = Domain(choice=({"compile": True}, {"activations": "recompute"}))
    conditional = Domain(uniform=(0.9, 0.99), when={"layout.activations": ("recompute",)})
    searched = sweep().model_copy(update={"space": {"optimizer.beta2": conditional, "layout": layouts}})
    assert "optimizer.beta2" not in SearchSubject(searched, training, "a", "b").opened("x").written
