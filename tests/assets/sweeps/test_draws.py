"""Changed copies of parameters: each moves on its own scale and stays inside its domain."""

from collections.abc import Mapping
from typing import Any

import pytest

from slipway.assets.sweeps.draws import Mutation, generator, mutated
from slipway.recipes.search_space import SearchSpace

pytestmark = pytest.mark.pure


def copies(domain: Mapping[str, Any], value: Any, factors: tuple[float, float] = (0.5, 2.0)) -> set[Any]:
    """The values that copies of one parent have, without any that is drawn anew."""
    space = SearchSpace.of({"a.b": domain})
    mutation = Mutation(factors, resample=0.0)
    return {mutated(space, {"a.b": value}, mutation, generator("a test", seed))["a.b"] for seed in range(20)}


def test_a_number_of_a_logarithmic_interval_is_multiplied():
    assert copies({"loguniform": [1.0, 100.0]}, 10.0) == {5.0, 20.0}


def test_with_steps_it_goes_to_the_step_that_is_nearest_to_that():
    assert copies({"loguniform": [64, 1024], "step": 64}, 512) == {256, 1024}


def test_it_goes_one_step_at_the_least():
    assert copies({"loguniform": [64, 1024], "step": 64}, 128, (0.9, 1.1)) == {64, 192}


def test_a_number_of_an_interval_moves_by_a_share_of_its_length():
    assert copies({"uniform": [0.0, 8.0]}, 4.0, (0.75, 1.25)) == {2.0, 6.0}


def test_a_choice_goes_to_a_neighbour_and_no_further_than_the_last():
    assert copies({"choice": ["a", "b", "c"]}, "b") == {"a", "c"}
    assert copies({"choice": ["a", "b", "c"]}, "c") == {"b", "c"}
