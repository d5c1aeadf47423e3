"""Robust statistics: a few wild numbers move nothing."""

import pytest

from slipway.trainer.recovery.pace import FEWEST, StepPace
from slipway.trainer.recovery.statistics import median, sigmas

pytestmark = pytest.mark.pure


def test_the_median_is_one_of_the_numbers() -> None:
    assert median([5.0, 1.0, 9.0]) == 5.0
    assert median([1.0, 2.0]) == 1.0


def test_a_normal_deviation_counts_in_its_own_unit() -> None:
    numbers = [-1.5, -0.67, 0.0, 0.67, 1.5]
    assert sigmas(3.0, numbers, 0.0) == pytest.approx(3.0, rel=0.02)


def test_a_few_wild_numbers_do_not_hide_another() -> None:
    assert sigmas(9.0, [1.0, 1.1, 0.9, 1.05, 0.95, 1000.0], 0.0) > 50


def test_numbers_that_are_all_alike_make_no_other_far_that_is_within_the_least_share() -> None:
    assert sigmas(1.02, [1.0] * 9, 0.01) == pytest.approx(2.0)
    assert sigmas(0.5, [1.0] * 9, 0.01) < 0


def test_the_pace_says_nothing_before_it_has_enough_steps() -> None:
    pace = StepPace()
    assert [pace.add(0.1, 0.05) for _ in range(FEWEST)] == [(0.0, 0.0)] * (FEWEST - 1) + [(0.1, 0.05)]
    assert pace.add(0.7, 0.05) == (0.7, 0.05)
