"""Costs: rank-hours follow the ranks of the moment, and only the time in which they were held."""

import datetime

import pytest

from slipway.resources.trainings.accounts import FREE, Prices, RankPrice, TrainingCost, cost_shares
from slipway.trainer.base.units import DAY
from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.accounting.account import Account
from slipway.trainer.record.accounting.segments import Stretch

pytestmark = pytest.mark.pure


def account(*stretches: Stretch) -> Account:
    return Account(stretches[0].begin, stretches[-1].end, stretches, (), (), stretches[0].begin)


def test_ranks_are_those_of_the_incarnation_of_the_moment():
    known = account(
        Stretch(0, 3600, {buckets.STEPS: 3600.0}),
        Stretch(3600, 7200, {buckets.STEPS: 1800.0, buckets.REPEATED: 1800.0}),
    )
    shares = cost_shares(known, [(0.0, 8), (3600.0, 4)])
    assert {share.bucket: share.rank_hours for share in shares} == {buckets.STEPS: 10.0, buckets.REPEATED: 2.0}


def test_waiting_for_nodes_a_queue_and_a_stop_cost_nothing():
    known = account(Stretch(0, 300, dict.fromkeys(FREE, 100.0)))
    assert cost_shares(known, [(0.0, 8)]) == []


def test_hours_are_reported_by_day():
    known = account(Stretch(0, 3600, {buckets.STEPS: 3600.0}), Stretch(3600 + DAY, 7200 + DAY, {buckets.STEPS: 3600.0}))
    days = [share.day for share in cost_shares(known, [(0.0, 1)])]
    assert days == [datetime.date(1970, 1, 1), datetime.date(1970, 1, 2)]


def test_spot_has_a_price_of_its_own():
    prices = Prices("EUR", on_demand=2.0, spot=0.5)
    assert TrainingCost((), spot=True).money(10, prices.of("")) == 5.0
    assert TrainingCost((), spot=False).money(10, prices.of("team:any")) == 20.0
    assert TrainingCost((), spot=False).money(10, None) is None


def test_a_team_with_prices_of_its_own_pays_them():
    prices = Prices("EUR", on_demand=2.0, spot=0.5, teams={"team:ours": RankPrice(1.0, 0.25)})
    assert TrainingCost((), spot=False).money(10, prices.of("team:ours")) == 10.0
    assert TrainingCost((), spot=False).money(10, prices.of("team:theirs")) == 20.0
