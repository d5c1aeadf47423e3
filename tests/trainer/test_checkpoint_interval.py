"""How often a training saves: Young's and Daly's optimum from what was measured, below ceilings (C3)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.checkpoint import interval
from trainer.checkpoint.interval import Failures, due, failures, nvme_seconds, optimal_seconds
from trainer.fence import Claim, Exit, Token
from trainer.operation import Storage

HOUR = 3600.0
INTERVALS = interval.seconds(Storage(), nvme=60.0)
NEVER = Failures(0, HOUR)


def claim(incarnation: int, at: float, generation: int = 0) -> Claim:
    return Claim(Token(incarnation, generation), (), (), "a test", "test", at)


def ended(incarnation: int, outcome: str, at: float) -> Exit:
    return Exit(incarnation, outcome, "a test", 0, "test", at)


def lost(blocked: float, between: float, every: float) -> float:
    """Daly's expected wall seconds to do a second of work (2006, equation 13, without the time to restart)."""
    return between * math.expm1((every + blocked) / between) / every


@given(st.floats(0.01, 100), st.floats(300, 1e6))
def test_no_other_interval_loses_noticeably_less(blocked: float, between: float):
    best = optimal_seconds(blocked, between)
    others = [best * factor for factor in (0.25, 0.5, 0.8, 1.25, 2, 4)]
    assert all(lost(blocked, between, best) <= lost(blocked, between, other) * 1.001 for other in others)


def test_for_cheap_saves_it_is_youngs():
    assert optimal_seconds(0.1, 4 * HOUR) == pytest.approx(math.sqrt(2 * 0.1 * 4 * HOUR), rel=0.01)


def test_where_a_save_costs_more_than_failures_leave_it_is_the_time_between_them():
    assert optimal_seconds(200, 100) == 100


def test_a_thousandth_of_the_failures_makes_it_some_thirty_times_longer():
    assert optimal_seconds(0.1, 1e6) / optimal_seconds(0.1, 1e3) == pytest.approx(math.sqrt(1000), rel=0.01)


def test_before_the_first_failure_or_the_first_save_the_ceiling_holds():
    assert nvme_seconds(15, 0.1, 5, NEVER) == 900
    assert nvme_seconds(15, None, 5, Failures(3, HOUR)) == 900


def test_the_optimum_is_never_above_the_ceiling_nor_below_what_a_save_takes():
    assert nvme_seconds(15, 1.0, 5, Failures(1, 1000 * HOUR)) == 900
    assert nvme_seconds(15, 0.0001, 20, Failures(60, HOUR)) == 20
    assert nvme_seconds(15, 0.1, 5, Failures(1, HOUR)) == pytest.approx(optimal_seconds(0.1, HOUR))


def test_no_ceiling_is_never_by_the_clock():
    assert nvme_seconds(0, 0.1, 5, Failures(1, HOUR)) == 0


def test_starts_that_were_broken_off_are_failures_and_those_that_were_stopped_are_not():
    claims = [claim(1, 0), claim(1, 100, generation=1), claim(2, 310), claim(3, 1000)]
    exits = {1: ended(1, "failed", 300), 2: ended(2, "stopped", 400), 3: ended(3, "succeeded", 1500)}
    # 0 to 100 and 100 to 300 failed; 310 to 400 was stopped; 1000 to 1500 succeeded.
    assert failures(claims, exits, now=9999) == Failures(2, 100 + 200 + 90 + 500)


def test_a_start_that_runs_counts_up_to_now_and_one_without_a_record_up_to_the_next():
    assert failures([claim(1, 0), claim(2, 70)], {}, now=100) == Failures(1, 100)
    assert failures([], {}, now=100).mean_seconds_between is None


def test_each_tier_is_due_by_its_own_clock_the_fastest_first():
    last = dict.fromkeys(interval.TIERS, 0.0)
    assert due(59, 7, 10, INTERVALS, last) == ()
    assert due(60, 7, 10, INTERVALS, last) == ("nvme",)
    assert due(1800, 7, 10, INTERVALS, last) == ("nvme", "durable")
    assert due(7200, 7, 10, INTERVALS, last) == ("nvme", "durable", "backup")
    assert due(7200, 7, 10, INTERVALS, last | {"nvme": 7190.0}) == ("durable", "backup")


def test_the_steps_of_the_recipe_always_leave_one_on_the_durable_tier():
    last = dict.fromkeys(interval.TIERS, 0.0)
    assert due(1, 20, 10, INTERVALS, last) == ("durable",)
    assert due(1, 20, 10, dict.fromkeys(interval.TIERS, 0.0), last) == ("durable",)


def test_a_tier_that_there_is_not_is_never_due():
    without = {tier: seconds for tier, seconds in INTERVALS.items() if tier != "backup"}
    assert due(1e9, 7, 10, without, dict.fromkeys(interval.TIERS, 0.0)) == ("nvme", "durable")
