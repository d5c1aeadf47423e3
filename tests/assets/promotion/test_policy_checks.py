"""The checks of a policy: what they say of figures, and why."""

import json

import numpy as np
import pytest

from slipway.assets.promotion import policy_checks as checks
from slipway.assets.promotion.comparison import PairedDifference
from slipway.assets.promotion.policy_checks import Rivals
from slipway.recipes.gate import GateSection

pytestmark = pytest.mark.pure
POLICY = GateSection(margin=0.02, slice_margin=0.1, slice_examples=3)


def difference_of(mean: float, high: float) -> PairedDifference:
    return PairedDifference(mean, 2 * mean - high, high, 100, 0.975)


def rivals(worse_in_the_slice: float) -> Rivals:
    """Ten examples, of which four are in a slice."""
    own = np.array([True] * 4 + [False] * 6)
    return Rivals(np.where(own, worse_in_the_slice, -1.0), np.zeros(10), np.ones(10), {"source=a": own})


def test_a_candidate_passes_that_is_better_in_the_mean_and_surely_not_worse_by_the_margin():
    assert checks.against_champion(difference_of(-0.01, 0.01), POLICY).passed


def test_one_that_may_be_worse_by_the_margin_does_not_pass():
    assert not checks.against_champion(difference_of(-0.01, 0.02), POLICY).passed


def test_one_that_is_equal_in_the_mean_does_not_pass():
    assert not checks.against_champion(difference_of(0.0, 0.0), POLICY).passed


def test_one_that_gains_less_than_the_policy_asks_for_does_not_pass():
    policy = POLICY.model_copy(update={"minimum_gain": 0.05})
    assert not checks.against_champion(difference_of(-0.04, -0.03), policy).passed
    assert checks.against_champion(difference_of(-0.06, -0.05), policy).passed


def test_too_few_examples_pass_nothing_and_say_so():
    outcome = checks.against_champion(PairedDifference(-1.0, -np.inf, np.inf, 5, 0.975), POLICY)
    assert not outcome.passed and "5 examples are too few" in outcome.note


def test_a_slice_that_is_worse_by_more_than_its_margin_fails():
    assert not checks.slices(rivals(0.11), POLICY).passed
    assert checks.slices(rivals(0.09), POLICY).passed


def test_a_slice_with_few_examples_does_not_count():
    outcome = checks.slices(rivals(5.0), POLICY.model_copy(update={"slice_examples": 5}))
    assert outcome.passed and outcome.note == "no slice has 5 examples"


def test_a_figure_outside_its_limit_is_named_with_the_limit():
    policy = GateSection(at_most={"bits_per_byte": 1.5}, at_least={"accuracy": 0.4})
    outcome = checks.limits(policy, {"bits_per_byte": 1.7, "accuracy": 0.5})
    assert not outcome.passed and outcome.figures["broken"] == ["bits_per_byte: 1.7, expected at most 1.5"]


def test_a_limit_on_a_figure_that_is_not_known_is_not_met():
    outcome = checks.limits(GateSection(at_most={"calibration_error": 0.1}), {"calibration_error": None})
    assert outcome.figures["broken"] == ["calibration_error: not known, expected at most 0.1"]


def test_the_seed_follows_from_what_is_compared():
    assert checks.seed_of(POLICY, "a", "b") == checks.seed_of(POLICY, "a", "b") != checks.seed_of(POLICY, "b", "a")


def test_what_is_found_against_a_champion_can_be_kept_as_json():
    draw = np.random.default_rng(1)
    sizes = draw.lognormal(7, 1, 100).round()
    champion = sizes * draw.gamma(20.0, 0.05, 100)
    two = Rivals(champion - sizes * draw.gamma(4.0, 0.01, 100), champion, sizes, {"all": sizes > 0})
    policy = GateSection()
    outcome = checks.against_champion(checks.difference(two, policy, 1), policy)
    assert outcome.passed is True
    json.dumps([outcome.passed, dict(outcome.figures), checks.slices(two, policy).passed])
