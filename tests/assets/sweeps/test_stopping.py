"""Successive halving by stopping: which trials go on past a rung."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.sweeps.events import rung_reached
from slipway.assets.sweeps.schedulers.stopping import verdict

pytestmark = pytest.mark.pure

VALUES = st.lists(st.none() | st.integers(0, 9).map(float) | st.floats(-10, 10), max_size=40)
ETA = st.integers(2, 5)


def go_on(values: Sequence[float | None], eta: int) -> list[bool]:
    """Which of the values, arriving in this order, go on."""
    return [verdict(values[:index], value, eta) == "go on" for index, value in enumerate(values)]


def test_a_step_belongs_to_the_highest_rung_it_has_passed():
    assert [rung_reached((2, 6), step) for step in (1, 2, 5, 6, 100)] == [None, 2, 2, 6, 6]


def test_the_first_arrival_goes_on():
    assert verdict([], 5.0, 3) == "go on"


def test_the_second_goes_on_only_if_it_is_better():
    assert verdict([5.0], 4.0, 3) == "go on"
    assert verdict([5.0], 6.0, 3) == "stop"


def test_a_tie_goes_to_the_one_that_came_first():
    assert verdict([5.0], 5.0, 3) == "stop"


@given(VALUES, ETA)
def test_a_value_that_is_not_finite_stops(values, eta):
    assert verdict(values, None, eta) == "stop"


@given(VALUES, ETA)
def test_the_best_trial_of_a_rung_is_never_stopped(values, eta):
    finite = [value for value in values if value is not None]
    if finite:
        assert go_on(values, eta)[values.index(min(finite))]


@given(VALUES, ETA)
def test_a_trial_that_goes_on_is_among_the_best_share_of_those_that_arrived(values, eta):
    for index, goes_on in enumerate(go_on(values, eta)):
        if goes_on:
            arrived = sorted(value for value in values[: index + 1] if value is not None)
            assert values[index] in arrived[: -(-(index + 1) // eta)]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=40, unique=True), ETA)
def test_arriving_from_best_to_worst_no_more_than_the_share_goes_on(values, eta):
    assert sum(go_on(sorted(values), eta)) <= -(-len(values) // eta)


def test_the_mean_number_that_goes_on_over_all_orders_of_arrival_is_the_sum_of_the_shares():
    orders = list(permutations(range(6)))
    mean = Fraction(sum(sum(go_on(order, 3)) for order in orders), len(orders))
    assert mean == sum(Fraction(-(-arrived // 3), arrived) for arrived in range(1, 7))


@given(VALUES, st.none() | st.floats(-10, 10), ETA, st.randoms())
def test_the_order_of_earlier_arrivals_makes_no_difference(earlier, value, eta, random):
    shuffled = random.sample(earlier, len(earlier))
    assert verdict(shuffled, value, eta) == verdict(earlier, value, eta)
