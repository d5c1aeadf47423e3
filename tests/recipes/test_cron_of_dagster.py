"""Dagster takes every cron string that recipes take: the check of a recipe and the loading of definitions agree."""

import itertools

from dagster._utils.schedules import is_valid_cron_schedule, schedule_execution_time_iterator
from hypothesis import given
from hypothesis import strategies as st

from slipway.recipes import cron

RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
DAYS = ("*", "28", "29", "30", "31", "31,31", "30,31", "30-31", "31-31", "30-31/2", "*/31", "*/30", "1-31/30")
MONTHS = ("*", "2", "2,2", "2-2", "2-3/2", "2,4", "4,6", "1", "*/2")
WEEKDAYS = ("*", "0", "7", "1-5", "0-7", "*/2", "0,6")


def _item(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    part = st.one_of(st.just("*"), number.map(str), st.tuples(number, number).map(lambda two: f"{two[0]}-{two[1]}"))
    return st.one_of(part, st.tuples(part, st.integers(1, high)).map(lambda two: f"{two[0]}/{two[1]}"))


FIELDS = [st.lists(_item(*bounds), min_size=1, max_size=3).map(",".join) for bounds in RANGES]


def _accepts(text: str) -> bool:
    try:
        return bool(cron.check(text))
    except ValueError:
        return False


def _is_taken(text: str) -> bool:
    """Whether Dagster loads a schedule with this string, and finds its next time."""
    return is_valid_cron_schedule(text) and bool(next(schedule_execution_time_iterator(0, text, "UTC")))


def test_dagster_takes_every_day_of_a_month_that_recipes_take():
    texts = [f"0 0 {' '.join(rest)}" for rest in itertools.product(DAYS, MONTHS, WEEKDAYS)]
    assert [text for text in texts if _accepts(text) and not _is_taken(text)] == []
    assert sum(map(_accepts, texts)) > len(texts) / 2


@given(st.tuples(*FIELDS).map(" ".join))
def test_dagster_takes_every_cron_string_that_recipes_take(text: str):
    assert not _accepts(text) or _is_taken(text)
