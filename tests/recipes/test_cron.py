"""Cron strings of recipes."""

import pytest

from slipway.recipes.cron import check

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "*/5 0-6,12 1 1-12/2 7",
        "0 3 * * 0",
        "5/10 0 29 2 *",
        "0 0 31 1,4 *",
        "0 0 31 1 1",
        "00 00 * * *",
    ],
)
def test_cron_strings_are_accepted(text: str):
    assert check(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "@daily", "* * * *", "60 * * * *", "*/0 * * * *", "*/90 * * * *", "5-1 * * * *", "x * * * *", "٣ * * * *"],
)
def test_other_text_than_a_cron_string_is_refused(text: str):
    with pytest.raises(ValueError, match="expected a cron string"):
        check(text)


@pytest.mark.parametrize(
    "text", ["0 0 31 2 *", "0 0 30,31 2 *", "0 0 31 4,6 *", "0 0 31 2 1", "0 0 30,31 2 0-5", "0 0 31 4 0"]
)
def test_a_day_that_never_comes_is_refused(text: str):
    """Dagster refuses the first two when it loads all recipes, and the third in each tick."""
    with pytest.raises(ValueError, match="whose day of the month comes in one of its months"):
        check(text)
