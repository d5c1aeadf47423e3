"""Right and wrong answers of two models to the same questions: the interval of the difference of their shares."""

import math

import numpy as np
import pytest

from slipway.assets.promotion import comparison
from slipway.assets.promotion.comparison import Values

pytestmark = pytest.mark.pure
Z = 1.959964


def answers(worse: int, better: int, count: int) -> tuple[Values, Values]:
    """A candidate and a champion that answer so many questions differently, and are right otherwise."""
    candidate, champion = np.ones(count), np.ones(count)
    candidate[:worse], champion[worse : worse + better] = 0, 0
    return candidate, champion


def likelihood_score(worse: int, better: int, count: int, difference: float) -> float:
    """Tango's statistic with the likeliest share of "better", found by trying many."""
    tried = np.linspace(1e-9, (1 - abs(difference)) / 2, 200_001) + max(0.0, -difference)
    same = 1 - 2 * tried - difference
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = worse * np.log(tried + difference) + better * np.log(tried) + (count - worse - better) * np.log(same)
    best = tried[np.nanargmax(np.where(np.isfinite(logs), logs, -np.inf))]
    variance = count * (2 * best + difference - difference**2)
    return float((worse - better - count * difference) / math.sqrt(variance))


@pytest.mark.parametrize(("worse", "better", "count"), [(12, 2, 50), (3, 1, 44), (2, 9, 30)])
def test_the_ends_are_where_the_score_of_the_likeliest_model_is_the_quantile(worse: int, better: int, count: int):
    difference = comparison.compare_proportions(*answers(worse, better, count), 0.975)
    assert difference.mean == pytest.approx((worse - better) / count)
    assert likelihood_score(worse, better, count, difference.low) == pytest.approx(Z, abs=1e-3)
    assert likelihood_score(worse, better, count, difference.high) == pytest.approx(-Z, abs=1e-3)


def test_models_that_answer_alike_may_still_differ_by_what_so_few_questions_leave_open():
    difference = comparison.compare_proportions(*answers(0, 0, 100), 0.975)
    assert difference.mean == 0
    assert difference.high == pytest.approx(Z**2 / (100 + Z**2), abs=1e-6)
    assert difference.low == pytest.approx(-difference.high)


def test_a_model_that_is_worse_by_the_margin_seldom_passes():
    draw, passed = np.random.default_rng(1), 0
    for _ in range(1000):
        drawn = draw.random(100)
        champion = (drawn < 0.6).astype(float)
        candidate = ((drawn < 0.4) | (drawn > 0.9)).astype(float)  # 0.6 and 0.5: worse by 0.1
        passed += comparison.compare_proportions(candidate, champion, 0.975).high < 0.1
    assert passed <= 40  # 25 are expected; 40 or fewer in 99.8 % of cases


def test_other_questions_are_refused():
    with pytest.raises(ValueError, match="found 2 and 3 answers, expected the same questions for both"):
        comparison.compare_proportions(np.ones(2), np.ones(3), 0.975)
