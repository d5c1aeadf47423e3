"""Spikes: what is one is found, and losses that are spread in other ways than like a bell give no false alarm."""

import math
from collections.abc import Iterable

import numpy as np
import pytest

from slipway.trainer.elastic.outliers import FEWEST_LOSSES, LOSS_WINDOW, LastLosses, median, sigmas
from slipway.trainer.elastic.stragglers import FEWEST_STEPS, StepPace

pytestmark = pytest.mark.pure

SIGMAS = 10.0
"""The usual value of `recovery.spike_sigmas`."""
STEPS = 20_000
STEP = np.arange(STEPS)
CHANCE = np.random.default_rng(7)
FALLING = 2.5 + 5 * (STEP + 10.0) ** -0.3
"""A loss that falls as a power of the steps (Kaplan et al., Scaling Laws, 2020)."""


def spikes(losses: Iterable[float]) -> list[int]:
    """The steps, from 0 on, at which a spike begins."""
    last, high, steps = LastLosses(), False, list[int]()
    for step, loss in enumerate(losses):
        is_spike = last.is_spike(loss, SIGMAS)
        if is_spike and not high:
            steps.append(step)
        high = is_spike
        last.add(loss)
    return steps


def of_two_kinds(share: float) -> list[float]:
    """One batch in so many has a loss of 3, and the others one of 1."""
    losses = 1 + 0.02 * CHANCE.standard_normal(STEPS) + 2 * (CHANCE.random(STEPS) < share)
    return list(losses.tolist())


ALIKE = {
    "a bell": FALLING + 0.05 * CHANCE.standard_normal(STEPS),
    "double exponential": FALLING + 0.05 * CHANCE.laplace(size=STEPS),
    "a fast fall": 10 * np.exp(-STEP / 200) + 1 + 0.05 * CHANCE.standard_normal(STEPS),
    "a learning rate with restarts": 2.5 + 0.3 * np.abs(np.cos(STEP / 500)) + 0.03 * CHANCE.standard_normal(STEPS),
    "noise that lasts": FALLING + np.convolve(0.02 * CHANCE.standard_normal(STEPS), 0.98 ** np.arange(200))[:STEPS],
    "flat": np.full(STEPS, 2.0),
    "zero": np.zeros(STEPS),
    "three of ten batches are learned last": np.where(STEP % 10 < 3, 0.3, 0.01) + 0.001 * CHANCE.random(STEPS),
    "a third are of another kind": np.array(of_two_kinds(1 / 3)),
    "a tenth are of another kind": np.array(of_two_kinds(1 / 10)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_losses_without_a_spike_give_no_alarm(name: str) -> None:
    assert spikes(ALIKE[name].tolist()) == []


def test_heavy_tails_and_losses_near_zero_give_one_alarm_in_a_thousand_steps_at_most() -> None:
    """Here the largest losses are surprises: with three degrees of freedom, one in 1400 is ten deviations away."""
    heavy = FALLING + 0.05 * CHANCE.standard_t(3, STEPS)
    near_zero = 0.001 * np.exp(0.5 * CHANCE.standard_normal(STEPS))
    for losses in (heavy.tolist(), near_zero.tolist(), of_two_kinds(1 / 20), of_two_kinds(1 / 50)):
        assert len(spikes(losses)) <= STEPS / 1000


@pytest.mark.parametrize("step", [FEWEST_LOSSES, LOSS_WINDOW, 1000, STEPS - 1])
@pytest.mark.parametrize("name", ["a bell", "double exponential", "flat"])
def test_a_real_spike_is_found(name: str, step: int) -> None:
    losses = ALIKE[name].tolist()
    highest = max(losses[max(0, step - LOSS_WINDOW) : step])
    losses[step] = highest + 2 * (highest - min(losses)) + 1.0
    assert spikes(losses) == [step]


def test_a_second_spike_soon_after_the_first_one_is_found_too() -> None:
    losses = ALIKE["a bell"].tolist()
    losses[1000] = losses[1100] = 9.0
    assert spikes(losses) == [1000, 1100]


def test_a_loss_that_stays_high_is_one_spike_and_then_the_level() -> None:
    losses = np.concatenate([np.full(500, 2.0), np.full(500, 5.0)])
    assert spikes(losses.tolist()) == [500]


def test_a_loss_is_no_spike_before_there_are_enough_to_compare_it_with() -> None:
    assert not LastLosses([2.0] * (FEWEST_LOSSES - 1)).is_spike(100.0, SIGMAS)
    assert LastLosses([2.0] * FEWEST_LOSSES).is_spike(100.0, SIGMAS)


def test_a_lower_loss_is_no_spike_even_where_losses_are_below_zero() -> None:
    last = LastLosses([-2.0] * FEWEST_LOSSES)
    assert not last.is_spike(-9.0, SIGMAS) and last.is_spike(9.0, SIGMAS)


def test_only_the_last_losses_count_and_in_the_order_of_their_steps() -> None:
    last = LastLosses([9.0, 8.0])
    for step in range(LOSS_WINDOW):
        last.add(math.sin(step))
    expected = [math.sin(step) for step in range(LOSS_WINDOW)]
    assert last.in_order == expected and last.median == median(expected)
    assert LastLosses([1.0] * 2 * LOSS_WINDOW).in_order == [1.0] * LOSS_WINDOW


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
    assert [pace.add(0.1, 0.05) for _ in range(FEWEST_STEPS)] == [(0.0, 0.0)] * (FEWEST_STEPS - 1) + [(0.1, 0.05)]
    assert pace.add(0.7, 0.05) == (0.7, 0.05)
