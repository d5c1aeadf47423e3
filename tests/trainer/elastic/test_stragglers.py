"""Stragglers: which ranks are slow, for how long, and that it is told once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.config.operation import Recovery
from slipway.trainer.elastic.lookout import PERSISTS_SECONDS, Lookout
from slipway.trainer.elastic.stragglers import SlowRanks, StepPace, slow_ranks
from slipway.trainer.record import causes, incidents
from slipway.trainer.record.commits import GIVEN_UP
from slipway.trainer.record.fence import Token
from slipway.trainer.record.heartbeat import Heartbeat

pytestmark = pytest.mark.pure
BOTH = (0, 1)


def test_of_two_ranks_the_one_that_takes_twice_as_long_is_slow() -> None:
    assert slow_ranks({0: 0.1, 1: 0.2}, 6.0) == {1: pytest.approx(2.0)}


def test_ranks_that_are_nearly_alike_are_not_slow() -> None:
    assert slow_ranks({rank: 0.1 + 0.004 * rank for rank in range(8)}, 6.0) == {}


def test_one_of_many_is_found_although_the_others_differ_too() -> None:
    own = {rank: 0.1 + 0.01 * (rank % 3) for rank in range(31)} | {31: 0.3}
    assert list(slow_ranks(own, 6.0)) == [31]


def test_two_slow_ranks_do_not_hide_one_another() -> None:
    own = dict.fromkeys(range(8), 0.1) | {3: 0.5, 6: 0.6}
    assert sorted(slow_ranks(own, 6.0)) == [3, 6]


def test_the_noise_of_steps_that_take_no_time_is_no_straggler() -> None:
    assert slow_ranks({0: 1e-5, 1: 9e-4}, 6.0) == {}


def test_a_rank_alone_is_never_slow() -> None:
    assert slow_ranks({0: 5.0}, 6.0) == {}


def test_a_rank_is_reported_once_when_it_has_been_slow_for_long_enough() -> None:
    slow = SlowRanks(60.0)
    assert [slow.look({1: 2.0}, BOTH, now) for now in (0.0, 30.0, 60.0, 90.0)] == [[], [], [1], []]


def test_a_rank_that_was_not_slow_once_begins_anew() -> None:
    slow = SlowRanks(60.0)
    slow.look({1: 2.0}, BOTH, 0.0)
    slow.look({}, BOTH, 50.0)
    slow.look({1: 2.0}, BOTH, 70.0)
    assert slow.look({1: 2.0}, BOTH, 129.0) == []
    assert slow.look({1: 2.0}, BOTH, 131.0) == [1]


def test_a_rank_of_which_nothing_new_is_known_for_a_while_stays_as_slow_as_it_was() -> None:
    """It saves a checkpoint, or its steps are longer than the time between two looks."""
    slow = SlowRanks(60.0)
    slow.look({1: 2.0}, BOTH, 0.0)
    slow.look({}, (), 50.0)
    assert slow.look({1: 2.0}, (), 61.0) == []
    assert slow.look({1: 2.0}, BOTH, 70.0) == [1]


def test_of_short_steps_the_last_sixteen_count() -> None:
    pace = StepPace()
    assert [pace.add(0.1, own)[1] for own in [0.05] * 16 + [0.5] * 8][-1] == 0.05
    assert pace.add(0.5, 0.5)[1] == 0.5


def test_where_steps_take_long_a_rank_that_has_become_slow_is_seen_after_three_of_them() -> None:
    pace = StepPace()
    paces = [pace.add(seconds, seconds - 1) for seconds in [10.0] * 16 + [30.0] * 3]
    assert [own for _, own in paces[-4:]] == [9.0, 9.0, 9.0, 29.0]


@dataclass
class Writer:
    """What writes checkpoints."""

    busy: bool = False
    bytes_written: int = 0


TOKEN = Token(1)


def failed(step: int, reason: str = "No space left on device") -> dict[str, Any]:
    return {"event": "commit_failed", "step": step, "reason": reason}


def test_saves_that_fail_are_reported_once_until_one_succeeds(tmp_path: Path) -> None:
    looks = lookout(tmp_path)
    for event in (failed(5), failed(10), {"event": "committed", "step": 15}, failed(20)):
        looks.saved(event)
    recorded = [incidents.read(tmp_path, id) for id in incidents.names(tmp_path)]
    assert [(incident.kind, incident.step, incident.survived) for incident in recorded] == [
        (causes.STORAGE, 5, True),
        (causes.STORAGE, 20, True),
    ]
    assert recorded[0].reason == "the checkpoint of step 5 could not be saved: No space left on device"


def test_a_save_whose_generation_is_over_is_no_fault_of_the_storage(tmp_path: Path) -> None:
    lookout(tmp_path).saved(failed(5, GIVEN_UP))
    assert incidents.names(tmp_path) == []


def lookout(store: Path, writer: Writer | None = None, **recovery: Any) -> Lookout:
    nothing = lambda *_, **__: None  # noqa: E731
    return Lookout(Recovery(**recovery), store, TOKEN, False, nothing, writer or Writer(), stalls=100.0)


def beats(store: Path, *own: float, step: int = 41) -> None:
    for rank, seconds in enumerate(own):
        Heartbeat(store, TOKEN, rank).beat("training", step, pace=(0.5, seconds))


def recorded(store: Path) -> list[incidents.IncidentRecord]:
    return [incidents.read(store, id) for id in incidents.names(store)]


def test_the_lookout_tells_of_a_slow_rank_with_its_node_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_NODE", "node-7")
    straggler_lookout = lookout(tmp_path)
    beats(tmp_path, 0.1, 0.1, 0.35, step=20)
    straggler_lookout.look(0.0)
    assert recorded(tmp_path) == []
    beats(tmp_path, 0.1, 0.1, 0.35)
    straggler_lookout.look(PERSISTS_SECONDS)
    [incident] = recorded(tmp_path)
    assert incident.reason == (
        "rank 2 on node-7 needs 350 ms for its own part of a step, 3.5 times as long as the others, after step 41"
    )
    assert (incident.kind, incident.ranks, incident.nodes) == (causes.STRAGGLER, (2,), ("node-7",))
    assert incident.survived and straggler_lookout.asks_to_stop == ""


def test_where_the_recipe_says_so_the_lookout_asks_the_training_to_stop(tmp_path: Path) -> None:
    straggler_lookout = lookout(tmp_path, policies={"straggler": "replace"})
    for at, now in ((20, 0.0), (41, PERSISTS_SECONDS)):
        beats(tmp_path, 0.1, 0.5, step=at)
        straggler_lookout.look(now)
    assert straggler_lookout.asks_to_stop.startswith("asked to stop, as rank 1 on local needs 500 ms")


def test_a_recipe_may_have_nobody_look_for_stragglers(tmp_path: Path) -> None:
    straggler_lookout = lookout(tmp_path, straggler_sigmas=0.0)
    for at, now in ((20, 0.0), (41, PERSISTS_SECONDS)):
        beats(tmp_path, 0.1, 0.5, step=at)
        straggler_lookout.look(now)
    assert recorded(tmp_path) == []


def test_ranks_that_do_no_step_are_not_reported_as_slow_for_what_their_last_steps_were(tmp_path: Path) -> None:
    beats(tmp_path, 0.1, 0.5)
    straggler_lookout = lookout(tmp_path)
    for now in (0.0, PERSISTS_SECONDS, 2 * PERSISTS_SECONDS):
        straggler_lookout.look(now)
    assert recorded(tmp_path) == []


def test_a_checkpoint_whose_writer_does_not_move_is_reported_once(tmp_path: Path) -> None:
    writer = Writer(busy=True, bytes_written=7)
    straggler_lookout = lookout(tmp_path, writer)
    for now in (0.0, 99.0, 101.0, 300.0):
        straggler_lookout.look(now)
    [incident] = recorded(tmp_path)
    assert incident.kind == causes.STORAGE and incident.survived
    assert incident.reason == "no byte of a checkpoint has been written for 101 s, after step 0"


def test_a_checkpoint_that_is_written_slowly_is_no_stall(tmp_path: Path) -> None:
    writer = Writer(busy=True)
    straggler_lookout = lookout(tmp_path, writer)
    for now in range(0, 1000, 90):
        writer.bytes_written += 1
        straggler_lookout.look(float(now))
    assert recorded(tmp_path) == []
