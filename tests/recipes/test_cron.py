"""Cron strings of recipes."""

import pytest

from recipes.cron import check

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("text", ["* * * * *", "*/5 0-6,12 1 1-12/2 7", "0 3 * * 0"])
def test_cron_strings_are_accepted(text: str):
    assert check(text) == text


@pytest.mark.parametrize("text", ["", "@daily", "* * * *", "60 * * * *", "*/0 * * * *", "5-1 * * * *", "x * * * *"])
def test_other_text_than_a_cron_string_is_refused(text: str):
    with pytest.raises(ValueError, match="expected a cron string"):
        check(text)
