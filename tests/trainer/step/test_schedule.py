"""The learning rate's shape."""

from typing import Any

import pytest

from slipway.trainer.config.sections import OptimizerConfig
from slipway.trainer.step.schedule import consequence, learning_rate

pytestmark = pytest.mark.pure

EVERY_SCHEDULE = pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd", "constant"])


def rates(steps: int, **settings: Any) -> list[float]:
    config = OptimizerConfig(**{"learning_rate": 2.0, "final_fraction": 0.25, **settings})
    return [learning_rate(config, step, steps) for step in range(steps)]


def after_change(step: int, before: int, after: int, **settings: Any) -> str:
    config = OptimizerConfig(**{"learning_rate": 2.0, "final_fraction": 0.25, **settings})
    return consequence((config, before), (config, after), step)


def test_another_number_of_steps_moves_a_rate_that_falls_over_all_steps() -> None:
    sentence = after_change(10, 21, 41, schedule="linear")
    assert (
        sentence
        == "the learning rate is 1.625 at step 11, and not 1.25; it comes to 0.5 at step 41, and not at step 21"
    )


def test_before_the_decay_of_wsd_another_number_of_steps_moves_only_its_end() -> None:
    sentence = after_change(10, 40, 80, schedule="wsd")
    assert sentence == (
        "the learning rate is 2 at step 11, as it would have been; it comes to 0.5 at step 80, and not at step 40"
    )


def test_a_constant_rate_does_not_depend_on_the_number_of_steps() -> None:
    assert after_change(10, 40, 80, schedule="constant") == "the learning rate stays at 2"


@EVERY_SCHEDULE
def test_the_rate_climbs_linearly_to_the_highest(schedule: str) -> None:
    assert rates(20, warmup_steps=4, schedule=schedule)[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]


@EVERY_SCHEDULE
def test_the_first_step_already_learns(schedule: str) -> None:
    assert all(rate > 0 for rate in rates(20, warmup_steps=10, schedule=schedule))


@EVERY_SCHEDULE
def test_without_warm_up_the_first_step_has_the_highest_rate(schedule: str) -> None:
    assert rates(10, schedule=schedule)[0] == 2.0


@EVERY_SCHEDULE
def test_a_run_of_one_step_and_a_run_that_only_warms_up_have_rates(schedule: str) -> None:
    assert rates(1, schedule=schedule) == [2.0]
    assert rates(2, warmup_steps=4, schedule=schedule) == [0.5, 1.0]
    assert rates(5, warmup_steps=4, schedule=schedule)[-1] == 2.0


def test_after_warm_up_the_rate_falls_in_a_cosine_to_the_final_fraction_of_the_highest() -> None:
    falling = rates(15, warmup_steps=4)[4:]
    assert falling[5] == pytest.approx((2.0 + 0.5) / 2)
    assert falling[-1] == 0.5
    assert falling == sorted(falling, reverse=True)


def test_after_warm_up_the_rate_falls_in_a_line_to_the_final_fraction_of_the_highest() -> None:
    assert rates(8, warmup_steps=3, schedule="linear", final_fraction=0.0) == pytest.approx(
        [2 / 3, 4 / 3, 2.0, 2.0, 1.5, 1.0, 0.5, 0.0]
    )


def test_wsd_is_stable_until_it_decays_in_a_line_over_the_last_share_of_all_steps() -> None:
    assert rates(10, warmup_steps=2, schedule="wsd", decay_fraction=0.3, final_fraction=0.0) == pytest.approx(
        [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 4 / 3, 2 / 3, 0.0]
    )


def test_wsd_whose_warm_up_reaches_into_its_decay_falls_from_the_end_of_the_warm_up() -> None:
    assert rates(8, warmup_steps=4, schedule="wsd", decay_fraction=1.0, final_fraction=0.0)[3:] == pytest.approx(
        [2.0, 2.0, 4 / 3, 2 / 3, 0.0]
    )


def test_the_constant_rate_stays_at_the_highest() -> None:
    assert set(rates(10, warmup_steps=2, schedule="constant")[1:]) == {2.0}
