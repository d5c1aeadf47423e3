"""The interval between saves (C3): Young's and Daly's optimum from measurements, below a ceiling."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.checkpoint.saving import interval
from trainer.checkpoint.saving.cost import SaveCost
from trainer.checkpoint.saving.interval import Failures, due_tiers, failures, nvme_seconds, optimal_seconds
from trainer.checkpoint.tiers.tier import TIERS
from trainer.config.operation import RetentionRule, Storage
from trainer.record.fence import Claim, Exit, Token

pytestmark = pytest.mark.pure

HOUR = 3600.0
INTERVALS = interval.seconds_by_tier(Storage(), nvme=60.0)
NEVER = Failures(0, HOUR)


def claim(incarnation: int, at: float, generation: int = 0) -> Claim:
    return Claim(Token(incarnation, generation), (), (), "a test", "test", at)


def ended(incarnation: int, outcome: str, at: float) -> Exit:
    return Exit(incarnation, outcome, "a test", 0, "test", at)


def lost(blocked: float, between: float, every: float) -> float:
    """Daly's expected wall seconds to do a second of work (2006, equation 13, without the time to restart)."""
    return between * math.expm1((every + blocked) / between) / every


@given(st.floats(0.01, 100), st.floats(300, 1e6))
def test_no_other_interval_loses_noticeably_less_time(blocked: float, between: float):
    best = optimal_seconds(blocked, between)
    others = [best * factor for factor in (0.25, 0.5, 0.8, 1.25, 2, 4)]
    assert all(lost(blocked, between, best) <= lost(blocked, between, other) * 1.001 for other in others)


def test_for_cheap_saves_the_optimum_is_youngs():
    assert optimal_seconds(0.1, 4 * HOUR) == pytest.approx(math.sqrt(2 * 0.1 * 4 * HOUR), rel=0.01)


def test_for_very_slow_saves_the_interval_is_the_time_between_failures():
    assert optimal_seconds(200, 100) == 100


def test_a_thousandth_of_the_failures_makes_the_interval_about_thirty_times_longer():
    assert optimal_seconds(0.1, 1e6) / optimal_seconds(0.1, 1e3) == pytest.approx(math.sqrt(1000), rel=0.01)


def test_before_the_first_failure_the_ceiling_is_used():
    assert nvme_seconds(Storage(), 0.1, 5, NEVER) == 900


def test_the_interval_is_at_most_the_ceiling_and_at_least_the_duration_of_a_save():
    assert nvme_seconds(Storage(), 1.0, 5, Failures(1, 1000 * HOUR)) == 900
    assert nvme_seconds(Storage(), 0.0001, 20, Failures(60, HOUR)) == 20
    expected = (HOUR + interval.PRIOR_SECONDS) / 2
    assert nvme_seconds(Storage(), 0.1, 5, Failures(1, HOUR)) == pytest.approx(optimal_seconds(0.1, expected))


def test_one_failure_seconds_after_the_start_does_not_ask_for_a_save_every_few_steps():
    """A stall of a millisecond, 30 ms of writing, steps of 20 ms: the optimum of the bare mean is 8 steps."""
    assert nvme_seconds(Storage(), 0.004, 0.03, Failures(1, 3.0)) / 0.02 > 500


@given(
    st.floats(0, 100), st.floats(0, 100), st.integers(0, 1000), st.floats(0, 1e6), st.floats(0.001, 1), st.floats(1, 60)
)
def test_saves_never_cost_more_than_their_share(
    cost: float, saving: float, count: int, seconds: float, share: float, minutes: float
):
    storage = Storage(cost_share=share, nvme=RetentionRule(minutes=minutes, last=2))
    assert cost <= share * nvme_seconds(storage, cost, saving, Failures(count, seconds)) * (1 + 1e-9)


def test_a_share_of_nothing_is_refused():
    with pytest.raises(ValueError, match="expected a share above 0"):
        Storage(cost_share=0)


def test_a_ceiling_of_zero_means_no_saves_by_time():
    storage = Storage(nvme=RetentionRule(minutes=0, last=2))
    assert nvme_seconds(storage, 0.1, 5, Failures(1, HOUR)) == 0


def test_the_cost_of_a_save_follows_from_its_bytes_until_one_is_measured():
    cost = SaveCost()
    cost.expect(3_000_000_000)
    assert cost.seconds == 3
    cost.add_save(blocked=0.5, seconds=0.5)
    assert cost.seconds == 0.5


def test_the_cost_counts_the_steps_that_a_save_made_slower_on_any_rank():
    cost = SaveCost()
    for _ in range(5):
        cost.add_step(1.0, saving=False)
    for _ in range(3):
        cost.add_step(1.5, saving=True)
    cost.add_save(blocked=0.5, seconds=4)
    assert cost.seconds == pytest.approx(0.5 + 3 * 0.5)
    for _ in range(3):
        cost.add_step(1.0, saving=True)
    cost.add_save(blocked=0.5, seconds=4)
    assert cost.seconds == pytest.approx((2.0 + 0.5 + 0.35) / 2), "at least a tenth of the writer's time"


def test_replaced_starts_are_failures_and_stopped_ones_are_not():
    claims = [claim(1, 0), claim(1, 100, generation=1), claim(2, 310), claim(3, 1000)]
    exits = {1: ended(1, "failed", 300), 2: ended(2, "stopped", 400), 3: ended(3, "succeeded", 1500)}
    # 0 to 100 and 100 to 300 failed; 310 to 400 was stopped; 1000 to 1500 succeeded.
    assert failures(claims, exits, now=9999) == Failures(2, 100 + 200 + 90 + 500)


def test_a_running_start_lasts_until_now_and_one_without_an_exit_until_the_next_start():
    assert failures([claim(1, 0), claim(2, 70)], {}, now=100) == Failures(1, 100)
    assert failures([], {}, now=100).mean_seconds_between is None


def test_each_tier_is_due_after_its_own_interval_the_fastest_first():
    last = dict.fromkeys(TIERS, 0.0)
    assert due_tiers(59, 7, 10, INTERVALS, last) == ()
    assert due_tiers(60, 7, 10, INTERVALS, last) == ("nvme",)
    assert due_tiers(1800, 7, 10, INTERVALS, last) == ("nvme", "durable")
    assert due_tiers(7200, 7, 10, INTERVALS, last) == ("nvme", "durable", "backup")
    assert due_tiers(7200, 7, 10, INTERVALS, last | {"nvme": 7190.0}) == ("durable", "backup")


def test_the_durable_tier_is_due_every_so_many_steps():
    last = dict.fromkeys(TIERS, 0.0)
    assert due_tiers(1, 20, 10, INTERVALS, last) == ("durable",)
    assert due_tiers(1, 20, 10, dict.fromkeys(TIERS, 0.0), last) == ("durable",)


def test_a_tier_that_does_not_exist_is_never_due():
    without = {tier: seconds for tier, seconds in INTERVALS.items() if tier != "backup"}
    assert due_tiers(1e9, 7, 10, without, dict.fromkeys(TIERS, 0.0)) == ("nvme", "durable")
