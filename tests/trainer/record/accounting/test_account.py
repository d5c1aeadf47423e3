"""The account: every second between "wanted" and the end is in exactly one bucket, whatever happened."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.trainer.record import causes
from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.accounting.account import TrainingHistory, Wish, lost_by
from slipway.trainer.record.accounting.bookkeeper import account
from slipway.trainer.record.accounting.effective_time import effective_time, spent_since
from slipway.trainer.record.accounting.segments import MOST_STRETCHES, GenerationFold
from slipway.trainer.record.claims import Claim, Token
from slipway.trainer.record.incarnation_exit import Exit

pytestmark = pytest.mark.pure

Events = list[dict[str, Any]]


def phase(name: str, t: float, **fields: Any) -> dict[str, Any]:
    return {"event": "phase", "t": t, "phase": name, **fields}


def step(number: int, t: float, **fields: Any) -> dict[str, Any]:
    return {"event": "step", "t": t, "step": number, **fields}


def claim(incarnation: int, at: float, generation: int = 0, by: str = "watch") -> Claim:
    return Claim(Token(incarnation, generation), (), (), "a test", by, at)


def end(incarnation: int, outcome: str, at: float, by: str = "watch", **fields: Any) -> Exit:
    return Exit(incarnation, outcome, "a test", 0, by, at, **fields)


def run(
    begin: float, first: int, last: int, seconds_per_step: float = 1.0, restored: bool = False, ends: bool = False
) -> Events:
    """A generation: its process begins at `begin`, each start phase takes 2 s, then steps."""
    events = [phase("starting", begin + 2, since=begin), phase("staging", begin + 4), phase("restoring", begin + 6)]
    if restored:
        events.append({"event": "restored", "t": begin + 8, "step": first - 1})
    events.append(phase("training", begin + 8))
    events += [step(number, begin + 8 + seconds_per_step * (number - first + 1)) for number in range(first, last + 1)]
    if ends:
        t = events[-1]["t"]
        events += [phase("committing", t), phase("ending", t + 3), {"event": "ended", "t": t + 4}]
    return events


def fold(events: Events) -> GenerationFold:
    return GenerationFold().add(events)


KILLED_ONCE = TrainingHistory(
    wishes=[Wish(True, 0, 0)],
    claims=[claim(1, 5), claim(2, 40)],
    submitted={1: 6, 2: 42},
    generations={
        Token(1): fold(run(10, 1, 10)),  # steps until 28
        Token(2): fold(run(45, 6, 20, restored=True, ends=True)),  # steps from 53 until 68, its end at 72
    },
    ended={1: 30},
    exits={
        1: end(1, "failed", 38, kind=causes.DISRUPTED, disrupted=True, nodes=("node-1",)),
        2: end(2, "succeeded", 72, by="trainer"),
    },
)


def test_every_part_of_an_interrupted_training_has_its_bucket() -> None:
    spent = account(KILLED_ONCE, now=1000).seconds
    assert spent == pytest.approx(
        {
            buckets.WAITING: 6,  # until it was submitted
            buckets.QUEUE: 4 + 3,
            buckets.STARTING: 8,
            buckets.STAGING: 4,
            buckets.RESTORING: 4,
            buckets.STEPS: 5 + 15,
            buckets.REPEATED: 5,
            buckets.UNDETECTED: 2,
            buckets.RESTART: 8 + 4,
            buckets.CHECKPOINT: 3,
            buckets.ENDING: 1,
        }
    )
    assert sum(spent.values()) == pytest.approx(72)


def test_an_interruption_pays_for_all_that_follows_from_it_until_steps_go_on() -> None:
    (paid,) = account(KILLED_ONCE, now=1000).interruptions
    assert (paid.token, paid.kind, paid.nodes) == ("000001.0000", causes.DISRUPTED, ("node-1",))
    assert paid.seconds == pytest.approx(2 + 12 + 3 + 8 + 5)
    assert paid.lost[buckets.REPEATED] == pytest.approx(5)
    assert lost_by([paid], "kind") == {causes.DISRUPTED: paid.seconds}
    assert lost_by([paid], "node") == {"node-1": paid.seconds}


def test_the_figures_follow_their_definitions() -> None:
    figures = effective_time(account(KILLED_ONCE, now=1000))
    assert figures.ettr_meta == pytest.approx((20 + 3) / 72)
    assert figures.ettr_bytedance == pytest.approx(20 / 62), "since the first process began, at 10"
    assert figures.goodput == pytest.approx(20 / 72)
    assert figures.mfu is None


def test_the_window_counts_the_end_alone() -> None:
    time_account = account(KILLED_ONCE, now=1000)
    assert effective_time(time_account, window_seconds=14).ettr_window == pytest.approx(10 / 14, abs=0.1)
    assert sum(spent_since(time_account, 60).values()) == pytest.approx(12)


def test_mfu_counts_lost_time_as_nothing() -> None:
    events = [phase("starting", 10, since=10), phase("training", 10)]
    events += [step(number, 10 + number, mfu=0.5, seconds=1.0) for number in range(1, 11)]
    time_account = account(
        TrainingHistory(claims=[claim(1, 5)], exits={}, generations={Token(1): fold(events)}), now=30
    )
    figures = effective_time(time_account)
    assert figures.mfu_of_steps == pytest.approx(0.5)
    assert figures.mfu == pytest.approx(0.25)


def test_the_parts_of_a_step_have_buckets_of_their_own_and_are_lost_with_it() -> None:
    events = [phase("training", 0), step(1, 10, data_seconds=2.0, communication_seconds=3.0)]
    assert fold(events).stretches[-1].seconds == {buckets.STEPS: 5, buckets.DATA: 2, buckets.COMMUNICATION: 3}
    events += [{"event": "restored", "t": 11, "step": 0}]
    time_account = account(
        TrainingHistory(claims=[claim(1, 0)], exits={}, generations={Token(1): fold(events)}), now=12
    )
    assert time_account.seconds == pytest.approx({buckets.REPEATED: 11, buckets.STEPS: 1})


def test_parts_of_earlier_steps_never_make_a_step_longer_than_it_was() -> None:
    events = [phase("training", 0), step(1, 10, data_seconds=20.0, communication_seconds=20.0)]
    assert sum(fold(events).stretches[-1].seconds.values()) == pytest.approx(10)


def test_a_generation_that_the_supervisor_restarts_has_its_parts() -> None:
    time_account = account(
        TrainingHistory(
            wishes=[Wish(True, 0, 0)],
            claims=[claim(1, 0), claim(1, 25, generation=1)],
            submitted={1: 0},
            generations={
                Token(1): fold(run(0.001, 1, 10)),  # until 18
                Token(1, 1): fold(run(22, 11, 20, restored=True, ends=True)),
            },
            marks={
                Token(1): [{"event": "incident", "t": 19, "kind": causes.MACHINE, "nodes": ("node-2",)}],
                Token(1, 1): [{"event": "detected", "t": 19}, {"event": "ranks_ready", "t": 20}],
            },
            exits={1: end(1, "succeeded", 44, by="trainer")},
        ),
        now=1000,
    )
    assert time_account.seconds[buckets.UNDETECTED] == pytest.approx(1, abs=0.01)
    assert time_account.seconds[buckets.RESTART] == pytest.approx(3)
    assert buckets.REPEATED not in time_account.seconds, "no step was lost"
    (paid,) = time_account.interruptions
    assert (paid.kind, paid.nodes) == (causes.MACHINE, ("node-2",))
    assert paid.seconds == pytest.approx(4 + 8, abs=0.01)


def test_an_outage_of_the_control_plane_is_named_by_its_missing_ticks() -> None:
    time_account = account(TrainingHistory(**{**vars(KILLED_ONCE), "away": [(31, 37)]}), now=1000)
    assert time_account.seconds[buckets.AWAY] == pytest.approx(6)
    assert time_account.seconds[buckets.RESTART] == pytest.approx(6)
    assert time_account.downtime_evidence == ("the control plane did not tick for 6 s",)


def test_an_outage_is_also_known_by_a_job_whose_end_was_seen_late() -> None:
    late = {**vars(KILLED_ONCE), "claims": [claim(1, 5), claim(2, 1000)], "submitted": {1: 6, 2: 1001}}
    late["exits"] = {1: end(1, "failed", 930)}
    late["generations"] = {Token(1): KILLED_ONCE.generations[Token(1)], Token(2): fold(run(1002, 6, 20))}
    time_account = account(TrainingHistory(**late), now=1030)
    assert time_account.seconds[buckets.AWAY] == pytest.approx(930 - 30 - 60)
    assert "had ended 900 s before anybody saw it" in time_account.downtime_evidence[0]


def test_the_time_in_which_a_person_had_stopped_it_is_not_the_machines_fault() -> None:
    time_account = account(
        TrainingHistory(
            wishes=[Wish(True, 0, 0), Wish(False, 20, 1), Wish(True, 100, 1)],
            claims=[claim(1, 1), claim(2, 101)],
            submitted={1: 1, 2: 101},
            generations={Token(1): fold(run(2, 1, 10, ends=True)), Token(2): fold(run(102, 11, 20, ends=True))},
            exits={1: end(1, "stopped", 25), 2: end(2, "succeeded", 124, by="trainer")},
        ),
        now=1000,
    )
    assert time_account.seconds[buckets.STOPPED] == pytest.approx(100 - 24)
    assert time_account.interruptions == ()
    assert effective_time(time_account).ettr_meta == pytest.approx((20 + 6) / (124 - 76))


def test_a_node_whose_clock_is_an_hour_ahead_changes_no_duration() -> None:
    shifted = fold(run(3610, 1, 10))
    time_account = account(TrainingHistory(**{**vars(KILLED_ONCE), "generations": {
        Token(1): shifted, Token(2): KILLED_ONCE.generations[Token(2)]}}), now=1000)  # fmt: skip
    assert time_account.seconds[buckets.STEPS] == pytest.approx(20)
    assert time_account.seconds[buckets.REPEATED] == pytest.approx(5)
    assert time_account.wall == pytest.approx(72)


def test_a_running_training_is_accounted_for_until_now() -> None:
    running = TrainingHistory(
        wishes=[Wish(True, 0, 0)], claims=[claim(1, 5)], submitted={1: 6}, exits={},
        generations={Token(1): fold(run(10, 1, 10))},
    )  # fmt: skip
    assert account(running, now=30).wall == 30
    waiting = TrainingHistory(wishes=[Wish(True, 0, 0)], claims=[], exits={}, generations={})
    assert account(waiting, now=30).seconds == {buckets.WAITING: 30}


def test_a_training_that_was_never_wanted_has_no_account() -> None:
    with pytest.raises(ValueError, match="nothing to account for"):
        account(TrainingHistory(claims=[], exits={}, generations={}), now=30)


def test_a_million_steps_make_a_bounded_fold_that_loses_no_second() -> None:
    ledger_fold = fold([phase("training", 0.0)])
    ledger_fold.add(step(number, float(number), data_seconds=0.25) for number in range(1, 100_001))
    assert len(ledger_fold.stretches) <= MOST_STRETCHES + 1
    assert sum(sum(stretch.seconds.values()) for stretch in ledger_fold.stretches) == pytest.approx(100_000)
    assert [stretch.first for stretch in ledger_fold.stretches[1:]] == [
        stretch.last + 1 for stretch in ledger_fold.stretches[:-1]
    ]


def test_a_ledger_of_an_earlier_version_without_phases_is_accounted_for_too() -> None:
    events = [{"event": "segment", "t": 1}, {"event": "staging", "t": 3}, {"event": "started", "t": 6}]
    events += [{"event": "restored", "t": 10, "step": 4}, step(5, 12, data_seconds=0.5), step(6, 14)]
    spent: dict[str, float] = {}
    for stretch in fold(events).stretches:
        for bucket, seconds in stretch.seconds.items():
            spent[bucket] = spent.get(bucket, 0.0) + seconds
    assert spent == {
        buckets.STAGING: 2, buckets.BUILDING: 3, buckets.RESTORING: 4, buckets.STEPS: 3.5, buckets.DATA: 0.5,
    }  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> tuple[TrainingHistory, float]:
    """Any sequence of starts, generations, kills, stops and outages, on clocks that disagree."""
    t, first = 0.0, 1
    wishes, claims, exits = [Wish(True, 0.0, 0)], [], {}
    submitted, over, away, marks = {}, {}, [], {}
    generations: dict[Token, GenerationFold] = {}
    seconds = st.floats(0, 300)
    for number in range(1, draw(st.integers(1, 4)) + 1):
        t += draw(seconds)
        claims.append(claim(number, t))
        if draw(st.booleans()):
            t += draw(seconds)
            submitted[number] = t
        for generation in range(draw(st.integers(0, 3))):
            t += draw(seconds)
            last = first + draw(st.integers(-1, 40))
            skew = draw(st.sampled_from([0.0, 0.0, -30.0, 3600.0]))
            events = run(t + skew, first, last, draw(st.floats(0.001, 20)), restored=draw(st.booleans()))
            events = events[: draw(st.integers(0, len(events)))]
            generations[Token(number, generation)] = fold(events)
            t = events[-1]["t"] - skew if events else t
            if draw(st.booleans()):
                marks[Token(number, generation)] = [{"event": "detected", "t": t + draw(st.floats(-5, 60))}]
            first = max(1, last - draw(st.integers(0, 30)))
        if draw(st.booleans()):
            over[number] = t + draw(st.floats(-10, 100))
        before, t = t, t + draw(seconds)
        exits[number] = end(number, draw(st.sampled_from(["failed", "stopped"])), t)
        if draw(st.booleans()):
            away.append((before, t + draw(seconds)))
        if exits[number].outcome == "stopped":
            wishes.append(Wish(False, before, number))
            t += draw(seconds)
            wishes.append(Wish(True, t, number))
    if draw(st.booleans()):
        exits.popitem()
    now = t + draw(seconds)
    return TrainingHistory(claims, exits, generations, wishes, submitted, over, marks, away), now


@given(histories())
def test_the_buckets_sum_to_the_wall_clock_without_gap_or_overlap(drawn: tuple[TrainingHistory, float]) -> None:
    history, now = drawn
    time_account = account(history, now)
    assert time_account.begin == 0 and time_account.end == pytest.approx(now)
    assert sum(time_account.seconds.values()) == pytest.approx(now, rel=1e-6, abs=1e-6)
    assert all(spent >= -1e-9 for stretch in time_account.stretches for spent in stretch.seconds.values())
    for one, next in itertools.pairwise(time_account.stretches):
        assert one.end == pytest.approx(next.begin)
    for stretch in time_account.stretches:
        assert sum(stretch.seconds.values()) == pytest.approx(stretch.end - stretch.begin, rel=1e-6, abs=1e-6)
    lost = sum(interruption.seconds for interruption in time_account.interruptions)
    assert lost <= time_account.wall - sum(time_account.seconds.get(name, 0.0) for name in buckets.PRODUCTIVE) + 1e-6


KILLED_WHILE_IT_STARTED = TrainingHistory(
    wishes=[Wish(True, 0, 0)],
    claims=[claim(1, 5), claim(2, 40), claim(3, 90)],
    submitted={1: 6, 2: 42, 3: 91},
    generations={
        Token(1): fold(run(10, 1, 10)),  # steps until 28
        Token(3): fold(run(95, 6, 20, restored=True, ends=True)),  # steps from 103 until 118, its end at 122
    },
    exits={
        1: end(1, "failed", 38, kind=causes.HUNG),
        2: end(2, "failed", 88, kind=causes.KILLED),  # none of its ranks had begun
        3: end(3, "succeeded", 122, by="trainer"),
    },
)


def test_a_start_that_fails_before_its_first_process_was_queued_until_then_and_not_undetected() -> None:
    time_account = account(KILLED_WHILE_IT_STARTED, now=1000)
    assert time_account.seconds[buckets.UNDETECTED] == pytest.approx(38 - 28), "until the first one was noticed"
    assert time_account.seconds[buckets.QUEUE] == pytest.approx(4 + (88 - 42) + 4)
    hung, killed = time_account.interruptions
    assert buckets.UNDETECTED not in killed.lost
    assert hung.lost[buckets.QUEUE] == pytest.approx(88 - 42)


def test_steps_that_are_done_again_are_paid_for_by_what_took_them_back_and_not_by_what_came_in_its_recovery() -> None:
    hung, killed = account(KILLED_WHILE_IT_STARTED, now=1000).interruptions
    assert hung.lost[buckets.REPEATED] == pytest.approx(5)
    assert buckets.REPEATED not in killed.lost


GIVEN_UP_BY_ITSELF = TrainingHistory(
    wishes=[Wish(True, 0, 0), Wish(False, 80, 2)],
    claims=[claim(1, 5), claim(2, 40)],
    submitted={1: 6, 2: 42},
    generations={
        Token(1): fold(run(10, 1, 4, ends=True)),  # steps until 22, its end at 26
        Token(2): fold(run(45, 1, 4, ends=True)),  # from the beginning: the steps from 53 until 57
    },
    exits={number: end(number, "failed", at, by="trainer", kind=causes.DIVERGED) for number, at in ((1, 26), (2, 61))},
)


def test_an_end_that_the_trainer_reports_as_failed_pays_for_the_start_that_follows_and_for_the_steps_done_again() -> (
    None
):
    first, last = account(GIVEN_UP_BY_ITSELF, now=1000).interruptions
    assert (first.token, first.kind) == ("000001.0000", causes.DIVERGED)
    assert first.lost == pytest.approx({
        buckets.RESTART: 42 - 26, buckets.QUEUE: 3, buckets.STARTING: 4, buckets.STAGING: 2, buckets.RESTORING: 2,
        buckets.REPEATED: 4,
    })  # fmt: skip
    assert (last.token, last.seconds) == ("000002.0000", 0)
