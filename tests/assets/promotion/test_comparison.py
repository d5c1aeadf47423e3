"""Two models on the same examples: the interval of their difference, and how often it misleads."""

import math

import numpy as np
import pytest

from slipway.assets.promotion import comparison

pytestmark = pytest.mark.pure
EXAMPLES, MARGIN = 200, 0.02


def pair(seed: int, worse: float) -> tuple[comparison.Values, comparison.Values, comparison.Values]:
    """Losses of a candidate that is worse by this in truth, those of the champion, and sizes; skewed, as texts are."""
    draw = np.random.default_rng(seed)
    sizes = draw.lognormal(7.0, 0.7, EXAMPLES).round()
    champion = sizes * draw.gamma(20.0, 0.05, EXAMPLES)
    return champion + sizes * (worse + 0.1 * draw.standard_normal(EXAMPLES)), champion, sizes


def test_the_same_seed_gives_the_same_interval():
    losses = pair(1, 0.0)
    assert comparison.compare(*losses, seed=5) == comparison.compare(*losses, seed=5)
    assert comparison.compare(*losses, seed=5) != comparison.compare(*losses, seed=6)


def test_the_difference_is_a_ratio_of_sums():
    difference = comparison.compare(np.array([3.0, 5.0]), np.array([2.0, 2.0]), np.array([10.0, 30.0]), seed=0)
    assert difference.mean == pytest.approx((1 + 3) / 40)


def test_a_few_examples_have_no_interval():
    difference = comparison.compare(np.ones(7), np.zeros(7), np.ones(7), seed=0)
    assert (difference.low, difference.high) == (-math.inf, math.inf)


def test_equal_models_differ_by_nothing():
    difference = comparison.compare(np.ones(50), np.ones(50), np.ones(50), seed=0)
    assert (difference.mean, difference.low, difference.high) == (0, 0, 0)


def test_a_model_that_is_worse_by_the_margin_seldom_passes():
    passed = sum(comparison.compare(*pair(seed, MARGIN), seed=seed, draws=400).high < MARGIN for seed in range(200))
    assert passed <= 12  # 5 are expected; 12 or fewer in 99.8 % of cases


def test_the_ends_lie_further_out_where_a_few_examples_decide():
    even, few = np.array([1.0, -1.0] * 50), np.array([0.01] * 98 + [1.0, -1.0])
    many = np.random.default_rng(0).standard_normal(100_000)
    assert comparison.tail(few, 0.975) < 0.0025 < comparison.tail(even, 0.975) < comparison.tail(many, 0.975) < 0.025
    assert comparison.tail(many, 0.975) == pytest.approx(0.025, abs=1e-4)
    assert comparison.tail(1000 * few, 0.975) == pytest.approx(comparison.tail(few, 0.975))


def test_what_makes_an_example_hard_is_the_same_for_both_and_cancels():
    candidate, champion, sizes = pair(3, -0.02)
    alone = comparison.interval_of(candidate, sizes, seed=0)
    together = comparison.compare(candidate, champion, sizes, seed=0)
    assert together.high - together.low < (alone.high - alone.low) / 2


def test_a_loss_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        comparison.compare(np.array([math.nan] * 9), np.zeros(9), np.ones(9), seed=0)


def test_other_examples_are_refused():
    with pytest.raises(ValueError, match="found 9, 8 and 9 examples, expected the same examples for both models"):
        comparison.compare(np.zeros(9), np.zeros(8), np.ones(9), seed=0)
