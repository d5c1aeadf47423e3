"""The sweep store: a folder with the specification and the events of a sweep."""

import dataclasses
import json
import threading

import pytest

from assets.sweeps.events import Asked, Opened, Reported, finite_or_none, parse, record
from assets.sweeps.state import fold
from assets.sweeps.store import EVENTS, SweepStore, sweep_id, sweeps
from tests.assets.sweeps.simulation import opened, power_law, whole
from trainer.base import journal, lock

pytestmark = pytest.mark.pure

SPECIFICATION = {"name": "tiny", "trials": 8}


def test_the_id_is_the_name_and_a_hash_of_the_specification():
    assert sweep_id("tiny", SPECIFICATION) == sweep_id("tiny", dict(reversed(SPECIFICATION.items())))
    assert sweep_id("tiny", SPECIFICATION) != sweep_id("tiny", SPECIFICATION | {"trials": 9})
    name, _, digits = sweep_id("tiny", SPECIFICATION).rpartition("-")
    assert name == "tiny"
    assert len(bytes.fromhex(digits)) == 6


def test_the_specification_is_written_once(tmp_path):
    store = SweepStore(tmp_path / "tiny-1")
    assert store.create(SPECIFICATION)
    assert not store.create({"name": "other"})
    assert store.specification() == SPECIFICATION


def test_the_sweeps_of_a_folder_are_those_with_a_specification(tmp_path):
    assert sweeps(tmp_path / "absent") == []
    for name in ("b", "a"):
        SweepStore(tmp_path / name).create(SPECIFICATION)
    (tmp_path / "neither").mkdir()
    assert [store.sweep for store in sweeps(tmp_path)] == ["a", "b"]


def test_sweeps_that_cannot_be_listed_are_not_no_sweeps(tmp_path):
    (tmp_path / "sweeps").touch()
    with pytest.raises(NotADirectoryError):
        sweeps(tmp_path / "sweeps")


def test_a_sweep_whose_folder_cannot_be_read_is_visited_all_the_same(tmp_path):
    SweepStore(tmp_path / "whole").create(SPECIFICATION)
    (tmp_path / "loop").symlink_to("loop")
    assert [store.sweep for store in sweeps(tmp_path)] == ["loop", "whole"]


def test_a_sweep_that_was_not_opened_has_no_events_and_no_state(tmp_path):
    store = SweepStore(tmp_path)
    assert (store.read(), store.state(), store.closed()) == ([], None, None)


def test_what_is_appended_is_read_back_equal(tmp_path):
    events = whole(opened(), power_law)
    store = SweepStore(tmp_path)
    store.append(*events[:5])
    assert store.closed() is None
    store.append(*events[5:])
    assert store.read() == events
    assert store.state() == fold(events)
    assert store.closed() == events[-1]


def test_an_incomplete_last_event_loses_no_other_event(tmp_path):
    store = SweepStore(tmp_path)
    store.append(opened())
    with open(tmp_path / EVENTS, "ab") as log:
        log.write(journal.frame(record(Asked(trial=0, parameters={})))[:-3])
    assert store.read() == [opened()]
    store.append(Asked(trial=0, parameters={"run.seed": 1}))
    assert store.read() == [opened(), Asked(trial=0, parameters={"run.seed": 1})]


def test_values_that_json_does_not_have_become_none(tmp_path):
    assert [finite_or_none(value) for value in (1.5, float("nan"), float("inf"), -float("inf"))] == [
        1.5,
        None,
        None,
        None,
    ]
    with pytest.raises(ValueError, match="JSON"):
        SweepStore(tmp_path).append(Reported(trial=0, step=1, value=float("nan")))


def test_the_log_is_readable_with_cut(tmp_path):
    SweepStore(tmp_path).append(opened(), Reported(trial=0, step=1, value=1.5))
    first, second = (json.loads(line.split("\t")[0]) for line in (tmp_path / EVENTS).read_text().splitlines())
    assert (first["event"], first["format"], first["rungs"]) == ("opened", "slipway.sweep-log/1", [1, 3])
    assert {**second, "at": 0} == {"event": "reported", "at": 0, "trial": 0, "step": 1, "value": 1.5}


@pytest.mark.parametrize("line", [{"event": "promoted"}, {**record(opened()), "format": "slipway.sweep-log/2"}])
def test_a_log_of_another_version_is_refused(line):
    with pytest.raises(ValueError, match=r"sweep log: found .*, expected an event of slipway\.sweep-log/1"):
        parse(line)


def test_a_log_begins_with_the_event_opened():
    with pytest.raises(ValueError, match="expected the event opened"):
        fold([Asked(trial=0, parameters={})])
    assert isinstance(fold([opened()]).plan, Opened)


def test_a_sweep_that_two_processes_open_at_one_moment_is_open_once(tmp_path):
    barrier = threading.Barrier(8)

    def open_it() -> None:
        barrier.wait()
        SweepStore(tmp_path).open(opened())

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert SweepStore(tmp_path).read() == [opened()]


def test_a_sweep_that_an_earlier_version_opened_twice_can_be_read(tmp_path):
    store = SweepStore(tmp_path)
    store.append(opened(), Asked(trial=0, parameters={}), opened())
    assert store.state() == fold([opened(), Asked(trial=0, parameters={})])


def test_an_event_that_cannot_follow_is_refused_in_words(tmp_path):
    other = dataclasses.replace(opened(), trials=99)
    with pytest.raises(ValueError, match="the sweep was opened with another plan before"):
        fold([opened(), other])


def test_a_sweep_that_is_cancelled_is_closed_though_another_process_holds_its_lock(tmp_path):
    store = SweepStore(tmp_path)
    store.open(opened())
    with lock.exclusive(tmp_path):
        assert store.cancel("a test", "nobody wants it")
        assert not store.cancel("a test", "and again")
    closed = store.closed()
    assert closed is not None and (closed.outcome, closed.reason) == ("stopped", "nobody wants it")
    state = store.state()
    assert state is not None and state.closed == closed
    assert store.read() == [opened()], "its one writer logs it"


def test_a_sweep_that_is_complete_is_not_cancelled_any_more(tmp_path):
    events = whole(opened(), power_law)
    store = SweepStore(tmp_path)
    store.append(*events)
    store.cancel("a test", "too late")
    assert store.state() == fold(events)
