"""The interval between saves: Young's and Daly's optimum from measurements, below a ceiling."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.trainer.base.units import DAY, HOUR
from slipway.trainer.checkpoint.saving.interval import (
    Failures,
    SaveCost,
    ceilings,
    due_tiers,
    failures,
    optimal_seconds,
    tier_seconds,
)
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME, TIERS
from slipway.trainer.config.operation import RetentionRule, Storage
from slipway.trainer.record import causes
from slipway.trainer.record.fence import Claim, Exit, Token
from slipway.trainer.record.incidents import IncidentRecord

pytestmark = pytest.mark.pure

INTERVALS = {**ceilings(Storage()), NVME: 60.0}
LLAMA_3 = Storage().failures_per_rank_day


def claim(incarnation: int, at: float, generation: int = 0) -> Claim:
    return Claim(Token(incarnation, generation), (), (), "a test", "test", at)


def ended(incarnation: int, outcome: str, at: float, kind: str = "", disrupted: bool = False) -> Exit:
    return Exit(incarnation, outcome, "a test", 0, "test", at, disrupted=disrupted, kind=kind)


def incident(token: Token, kind: str, survived: bool = False) -> IncidentRecord:
    return IncidentRecord(str(token), kind, "a test", "restarted", "test", 0.0, 7, survived=survived)


def nvme_seconds(storage: Storage, cost: float, saving: float, between: float) -> float:
    return tier_seconds(storage, NVME, cost, saving, between)


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


def test_the_prior_rate_is_llama_3s():
    assert Failures(0, 0.0).mean_seconds(16_384, LLAMA_3) == pytest.approx(2.78 * HOUR, rel=0.01)
    assert Failures(0, 0.0).mean_seconds(1, LLAMA_3) == pytest.approx(1898 * DAY, rel=0.01)


def test_large_trainings_save_often_from_the_start_and_small_ones_at_their_ceiling():
    def first(ranks: int) -> float:
        return nvme_seconds(Storage(), 0.3, 5, Failures(0, 0.0).mean_seconds(ranks, LLAMA_3))

    assert first(16_384) == pytest.approx(77, rel=0.02)
    assert first(1024) == pytest.approx(5.16 * 60, rel=0.02)
    assert first(8) == 900


def test_the_interval_is_at_most_the_ceiling_and_at_least_the_duration_of_a_save():
    assert nvme_seconds(Storage(), 1.0, 5, 1000 * HOUR) == 900
    assert nvme_seconds(Storage(), 0.0001, 20, 60) == 20
    assert nvme_seconds(Storage(), 0.1, 5, HOUR) == pytest.approx(optimal_seconds(0.1, HOUR))


def test_one_node_loss_a_minute_after_the_start_does_not_ask_for_a_save_every_few_steps():
    """A save of 4 ms, steps of 20 ms, two ranks: the optimum of the bare mean of 60 s is a save every 0.7 s."""
    once = Failures(1, 60.0, 1).mean_seconds(2, LLAMA_3)
    assert once == pytest.approx(7 * DAY, rel=0.01)
    assert nvme_seconds(Storage(), 0.004, 0.03, once) == pytest.approx(69, abs=1)


def test_failures_that_go_on_shorten_the_interval():
    between = [Failures(count, 60.0 * count).mean_seconds(2, LLAMA_3) for count in range(12)]
    assert between == sorted(between, reverse=True)
    assert nvme_seconds(Storage(), 0.004, 0.03, between[10]) == pytest.approx(22, abs=1)


def test_after_weeks_the_measured_rate_holds_and_not_the_prior():
    assert Failures(100, 100 * HOUR).mean_seconds(2, LLAMA_3) == pytest.approx(2.66 * HOUR, rel=0.01)
    assert Failures(1000, 1000 * HOUR).mean_seconds(2, LLAMA_3) == pytest.approx(HOUR, rel=0.2)
    assert Failures(240, 40 * DAY).mean_seconds(16_384, LLAMA_3) == pytest.approx(4 * HOUR, rel=0.01)


def test_every_tier_has_an_optimum_below_its_own_ceiling():
    assert tier_seconds(Storage(), DURABLE, 0.3, 5, 10_000.0) == pytest.approx(optimal_seconds(0.3, 10_000.0))
    assert tier_seconds(Storage(), DURABLE, 0.3, 5, 1e9) == 1800
    assert ceilings(Storage())[BACKUP] == 7200


@given(
    st.floats(0, 100), st.floats(0, 100), st.integers(0, 1000), st.floats(0, 1e6), st.floats(0.001, 1), st.floats(1, 60)
)
def test_saves_on_no_tier_cost_more_than_their_share(
    cost: float, saving: float, count: int, seconds: float, share: float, minutes: float
):
    rule = RetentionRule(minutes=minutes, last=2)
    storage, between = Storage(cost_share=share, nvme=rule, durable=rule), Failures(count, seconds)
    for tier in (NVME, DURABLE):
        interval = tier_seconds(storage, tier, cost, saving, between.mean_seconds(2, LLAMA_3))
        assert cost <= share * interval * (1 + 1e-9)


def test_a_share_of_nothing_is_refused():
    with pytest.raises(ValueError, match="expected a share above 0"):
        Storage(cost_share=0)


def test_a_ceiling_of_zero_means_no_saves_by_time():
    storage = Storage(nvme=RetentionRule(minutes=0, last=2))
    assert nvme_seconds(storage, 0.1, 5, HOUR) == 0


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


def test_only_failures_of_machines_count():
    claims = [claim(number, 100.0 * number) for number in range(1, 7)]
    exits = {
        1: ended(1, "failed", 150, causes.CONFIGURATION),
        2: ended(2, "failed", 250, causes.PROGRAM),
        3: ended(3, "failed", 350, causes.DISRUPTED, disrupted=True),
        4: ended(4, "stopped", 450, causes.STOP_REQUESTED),
        5: ended(5, "failed", 550, causes.KILLED),
    }
    assert failures(claims, exits, [], now=700) == Failures(2, 5 * 50 + 100, node_losses=1)


def test_a_rank_that_the_supervisor_restarts_counts_once_by_its_incident():
    claims = [claim(1, 0), claim(1, 100, generation=1), claim(1, 250, generation=2), claim(2, 400)]
    known = [incident(Token(1), causes.KILLED), incident(Token(1, 1), causes.DIVERGED)]
    known += [incident(Token(1, 2), causes.KILLED), incident(Token(1, 2), causes.STRAGGLER, survived=True)]
    exits = {1: ended(1, "failed", 390, causes.DISRUPTED, disrupted=True)}
    assert failures(claims, exits, known, now=500) == Failures(2, 390 + 100, node_losses=1)


def test_a_running_start_lasts_until_now_and_one_without_an_exit_until_the_next_start():
    assert failures([claim(1, 0), claim(2, 70)], {}, [], now=100) == Failures(0, 100)
    assert failures([], {}, [], now=100) == Failures(0, 0)


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
