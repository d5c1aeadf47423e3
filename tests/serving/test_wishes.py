"""Wishes: what should answer follows from the records alone, whoever was interrupted where."""

from pathlib import Path

import pytest

from slipway.resources.serving import wishes
from slipway.resources.serving.wishes import NotServed
from slipway.serving.records import ServedVersion, ServingRecords, ServingWish, SwitchPolicy, SwitchVerdict
from slipway.trainer.record.files import Unreadable

pytestmark = pytest.mark.pure

MODEL, BY = "model", "a test"
FIRST, SECOND, THIRD = (ServedVersion(number, number * 64, f"exports/{number}", number * 64) for number in "123")
CANARY = SwitchPolicy(share=0.1)


@pytest.fixture
def records(tmp_path: Path) -> ServingRecords:
    return ServingRecords(tmp_path)


def serve(records: ServingRecords, version: ServedVersion, outcome: str = "all", policy: SwitchPolicy | None = None):
    state = wishes.serve(records, MODEL, version, policy or SwitchPolicy(), True, BY, "asked")
    if outcome:
        assert records.judge(state, SwitchVerdict(outcome, "seen"))  # type: ignore[arg-type]
    return records.state(MODEL)


def test_before_the_first_wish_nothing_should_answer(records: ServingRecords):
    state = records.state(MODEL)
    assert (state.number, state.settled, state.coming, records.models()) == (0, None, None, [])


def test_until_the_verdict_the_version_before_answers(records: ServingRecords):
    serve(records, FIRST)
    state = serve(records, SECOND, outcome="", policy=CANARY)
    assert (state.settled, state.coming) == (FIRST, SECOND)
    records.judge(state, SwitchVerdict("all", "seen"))
    assert (records.state(MODEL).settled, records.state(MODEL).coming) == (SECOND, None)


def test_a_version_that_came_back_leaves_the_one_before(records: ServingRecords):
    serve(records, FIRST)
    state = serve(records, SECOND, outcome="back", policy=CANARY)
    assert (state.settled, state.coming) == (FIRST, None)


def test_a_wish_in_the_middle_of_a_switch_keeps_what_answered_before_it(records: ServingRecords):
    serve(records, FIRST)
    serve(records, SECOND, outcome="", policy=CANARY)
    state = serve(records, THIRD, outcome="", policy=CANARY)
    assert (state.settled, state.coming) == (FIRST, THIRD)


def test_the_same_wish_twice_is_one_and_after_it_came_back_it_is_another(records: ServingRecords):
    assert serve(records, FIRST).number == 1
    assert wishes.serve(records, MODEL, FIRST, SwitchPolicy(), True, BY, "again").number == 1
    serve(records, SECOND, outcome="back", policy=CANARY)
    assert wishes.serve(records, MODEL, SECOND, CANARY, True, BY, "again").number == 3


def test_back_is_to_the_version_that_answered_before_and_follows_no_champion(records: ServingRecords):
    serve(records, FIRST)
    serve(records, SECOND)
    state = wishes.back(records, MODEL, BY, "it repeats itself")
    assert state.desired is not None
    assert (state.coming, state.settled, state.desired.follows) == (FIRST, SECOND, False)


def test_back_in_the_middle_of_a_switch_is_to_what_still_answers(records: ServingRecords):
    serve(records, FIRST)
    serve(records, SECOND, outcome="", policy=CANARY)
    state = wishes.back(records, MODEL, BY, "it is odd")
    assert (state.coming, state.settled) == (FIRST, FIRST)


def test_there_is_no_way_back_from_the_first_version(records: ServingRecords):
    serve(records, FIRST)
    with pytest.raises(NotServed, match="no other version has answered"):
        wishes.back(records, MODEL, BY, "why not")


def test_what_is_stopped_answers_nothing_and_is_served_anew_from_nothing(records: ServingRecords):
    serve(records, FIRST)
    state = wishes.stop(records, MODEL, BY, "enough")
    assert (state.settled, state.coming) == (None, None)
    assert wishes.stop(records, MODEL, BY, "enough").number == state.number
    assert serve(records, SECOND, outcome="").settled is None


def test_what_is_withdrawn_answers_no_more_and_the_next_champion_follows(records: ServingRecords):
    serve(records, FIRST, policy=CANARY)
    state = wishes.withdraw(records, MODEL, {FIRST.checkpoint}, BY, "it leaks")
    assert state.desired is not None
    assert (state.desired.want, state.settled, state.coming) == ("stop", None, None)
    assert state.desired.follows and state.desired.policy == CANARY
    assert wishes.withdraw(records, MODEL, {FIRST.checkpoint}, BY, "it leaks").number == state.number
    stopped = wishes.stop(records, MODEL, BY, "enough")
    assert stopped.desired is not None and not stopped.desired.follows, "a person wants nothing more"


@pytest.mark.parametrize(("gone", "version"), [(FIRST, SECOND), (SECOND, FIRST)])
def test_of_two_versions_the_one_that_is_not_withdrawn_answers_alone(
    records: ServingRecords, gone: ServedVersion, version: ServedVersion
):
    serve(records, FIRST)
    serve(records, SECOND, outcome="", policy=CANARY)
    state = wishes.withdraw(records, MODEL, {gone.checkpoint}, BY, "it leaks")
    assert state.coming == version and state.settled in (None, version)


def test_back_passes_over_what_may_not_answer_again(records: ServingRecords):
    for version in (FIRST, SECOND, THIRD):
        serve(records, version)
    state = wishes.back(records, MODEL, BY, "odd", lambda version: "it leaks" if version == SECOND else "")
    assert state.coming == FIRST
    with pytest.raises(NotServed, match="model model: it leaks"):
        wishes.back(records, MODEL, BY, "odd", lambda version: "it leaks")


@pytest.mark.parametrize("is_known", [True, False])
def test_a_stop_that_was_lost_lets_no_version_answer_again(records: ServingRecords, is_known: bool):
    """Its copy, or what came of it, says that there was one."""
    serve(records, FIRST)
    stopped = wishes.stop(records, MODEL, BY, "enough")
    records.judge(stopped, SwitchVerdict("all", "seen"))
    (records.folder / MODEL / "wanted" / "000002.json").unlink()
    if is_known:
        assert records.state(MODEL).settled is None
        return
    (records.folder / MODEL / "wanted" / "000002.copy").unlink()
    with pytest.raises(Unreadable, match=r"000002\.json"):
        records.state(MODEL)


def test_of_two_who_wish_at_once_one_finds_out(records: ServingRecords):
    state = records.state(MODEL)
    assert records.wish(state, ServingWish("serve", "one", "asked", FIRST))
    assert not records.wish(state, ServingWish("serve", "other", "asked", SECOND))
    assert records.state(MODEL).coming == FIRST


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5])
def test_a_share_is_above_none_and_at_most_all(records: ServingRecords, share: float):
    with pytest.raises(NotServed, match="expected above 0 and 1 at most"):
        wishes.serve(records, MODEL, FIRST, SwitchPolicy(share=share), True, BY, "asked")
