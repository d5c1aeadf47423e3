"""The schedule of chaos: which fault comes when."""

import pytest

from slipway.operations.chaos import schedule

pytestmark = pytest.mark.pure
KINDS = ("a", "b", "c")


def test_the_same_seed_draws_the_same_faults_at_the_same_times():
    assert schedule.drawn(KINDS, 7, 900, 60) == schedule.drawn(KINDS, 7, 900, 60)
    assert schedule.drawn(KINDS, 7, 900, 60) != schedule.drawn(KINDS, 8, 900, 60)


def test_each_kind_comes_once_before_one_comes_again():
    planned = [planned_fault.fault for planned_fault in schedule.drawn(KINDS, 1, 9000, 60)]
    assert len(planned) > 100
    for begin in range(0, len(planned) - 3, 3):
        assert set(planned[begin : begin + 3]) == set(KINDS)


def test_pauses_have_the_mean_that_was_asked_for_and_none_comes_after_the_end():
    times = [planned_fault.at for planned_fault in schedule.drawn(KINDS, 3, 600_000, 60)]
    assert times == sorted(times) and times[-1] < 600_000
    assert len(times) == pytest.approx(schedule.MAX_FAULTS, rel=0.05)


@pytest.mark.parametrize(
    ("faults", "seconds", "every", "problem"),
    [
        ((), 900, 60, "faults: found none"),
        (KINDS, 0, 60, "minutes: found 0, expected a number above 0"),
        (KINDS, float("inf"), 60, "minutes: found inf, expected a number above 0"),
        (KINDS, 900, float("nan"), "every: found nan, expected a number above 0"),
        (KINDS, 900, 0.001, "every: found 0.001, which gives 900,000 faults, expected 10,000 at most"),
        (KINDS, 900, -1, "every: found -1, expected a number above 0"),
    ],
)
def test_what_makes_no_schedule_is_refused(faults: tuple[str, ...], seconds: float, every: float, problem: str):
    with pytest.raises(ValueError, match=problem):
        schedule.drawn(faults, 0, seconds, every)


def test_what_found_nothing_to_be_done_to_is_named_as_often_as_it_was_left_out():
    planned = [schedule.PlannedFault(at, fault, 0.5) for at, fault in enumerate("abacb")]
    assert schedule.left_out(planned, ["a", "b"]) == ["a", "b", "c"]
    assert schedule.left_out(planned, list("abacb")) == []
