"""Trials that wait are looked at in turn: each soon enough, and few at a time, however many wait."""

import pytest

from slipway.assets.sweeps.turns import SECONDS, Turns

pytestmark = pytest.mark.pure

TRIALS, POLL_SECONDS = 1000, 0.05


def test_each_of_a_thousand_has_its_turn_and_no_poll_looks_at_more_than_a_few():
    now = 0.0
    turns = Turns(lambda: now)
    last = dict.fromkeys(range(TRIALS), 0.0)
    for poll in range(round(4 * SECONDS / POLL_SECONDS)):
        now = poll * POLL_SECONDS
        due = [number for number in range(TRIALS) if turns.is_due(number)]
        assert len(due) <= 3 * TRIALS * POLL_SECONDS / SECONDS
        assert all(now - last[number] <= SECONDS + POLL_SECONDS for number in due)
        last |= dict.fromkeys(due, now)
    assert min(last.values()) >= now - SECONDS - POLL_SECONDS


def test_where_polls_are_rarer_than_turns_each_poll_looks_at_all():
    now = 0.0
    turns = Turns(lambda: now)
    for number in range(TRIALS):
        turns.is_due(number)
    for _ in range(3):
        now += 2 * SECONDS
        assert all(turns.is_due(number) for number in range(TRIALS))
