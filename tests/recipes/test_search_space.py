"""A search space: which parameters exist, which values they have, and what conditions and constraints see of them."""

import math
import random
from collections import Counter
from typing import Any

import pytest

from slipway.recipes.search_space import ContradictorySpace, SearchSpace, draw_one

pytestmark = pytest.mark.pure

LAYOUT: dict[str, dict[str, Any]] = {"layout": {"choice": [{"shard": "full"}, {"tensor": 2}]}}
FIXED = {"layout.tensor": 1}


def drawn(space: SearchSpace, count: int = 60) -> list[dict[str, Any]]:
    generator = random.Random(0)
    return [space.draw(generator) for _ in range(count)]


def test_a_constraint_sees_the_fields_of_a_section_that_is_drawn():
    space = {**LAYOUT, "batch.micro": {"choice": [1, 8]}}
    trials = drawn(SearchSpace.of(space, ["layout.tensor * batch.micro <= 8"], FIXED))
    assert {(trial["layout"].get("tensor", 1), trial["batch.micro"]) for trial in trials} == {(1, 1), (1, 8), (2, 1)}


def test_a_condition_sees_the_fields_of_a_section_that_is_drawn():
    """Its name comes before that of the section, and it is drawn after it all the same."""
    space = {**LAYOUT, "batch.micro": {"choice": [1, 8], "when": {"layout.tensor": [2]}}}
    trials = drawn(SearchSpace.of(space, fixed=FIXED))
    assert {("batch.micro" in trial, trial["layout"].get("tensor", 1)) for trial in trials} == {(True, 2), (False, 1)}


def test_a_condition_may_name_a_parameter_that_is_conditional_itself():
    space: dict[str, dict[str, Any]] = {
        "a.kind": {"choice": ["x", "y"]},
        "a.b": {"randint": [1, 3], "when": {"a.kind": ["x"]}},
        "a.c": {"uniform": [0, 1], "when": {"a.b": [2, 3]}},
    }
    for trial in drawn(SearchSpace.of(space)):
        assert ("a.b" in trial) == (trial["a.kind"] == "x")
        assert ("a.c" in trial) == (trial.get("a.b") in (2, 3))


def test_steps_of_a_logarithmic_interval_are_whole_numbers_where_its_step_and_lower_end_are():
    [integral, parts] = SearchSpace.of(
        {"a.b": {"loguniform": [64, 256], "step": 64}, "a.c": {"loguniform": [0.5, 2], "step": 0.5}}
    ).domains.values()
    assert repr(integral.listed()) == "(64, 128, 192, 256)" and repr(parts.listed()) == "(0.5, 1.0, 1.5, 2.0)"


def test_steps_of_a_logarithmic_interval_are_drawn_on_its_scale():
    domain = SearchSpace.of({"a.b": {"loguniform": [1, 1024], "step": 1}}).domains["a.b"]
    generator = random.Random(0)
    halves = Counter(draw_one(domain, generator) < math.sqrt(1024) for _ in range(400))
    assert 160 < halves[True] < 240


def test_an_interval_of_very_many_whole_numbers_takes_no_room():
    domain = SearchSpace.of({"a.b": {"randint": [0, 2**62]}}).domains["a.b"]
    listed = domain.listed()
    assert listed is not None and 2**61 in listed and 2**62 + 1 not in listed


def test_a_space_that_nothing_fits_is_contradictory():
    with pytest.raises(ContradictorySpace, match=r"none of 10,000 draws fits the constraints: a\.b < 0"):
        SearchSpace.of({"a.b": {"uniform": [0, 1]}}, ["a.b < 0"]).draw(random.Random(0))
