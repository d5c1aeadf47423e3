"""The sweep store: a folder with the specification and the events of a sweep."""

import dataclasses
import json
import threading

import pytest

from slipway.assets.sweeps.events import Opened, Proposed, Reported, finite_or_none, parse, record
from slipway.assets.sweeps.state import fold
from slipway.assets.sweeps.store import EVENTS, SweepStore, sweep_id, sweeps
from slipway.trainer.base import journal, lock
from tests.assets.sweeps.simulation import begun, budgeted, log_of, opened, power_law

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
    events = log_of(*begun(), power_law)
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
        log.write(journal.frame(record(Proposed(trial=0, parameters={}, until=9)))[:-3])
    assert store.read() == [opened()]
    store.append(Proposed(trial=0, parameters={"run.seed": 1}, until=9))
    assert store.read() == [opened(), Proposed(trial=0, parameters={"run.seed": 1}, until=9)]


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
    assert (first["event"], first["format"], first["scheduler"]["rungs"]) == (
        "opened",
        "slipway.sweep-log/2",
        [1, 3, 9],
    )
    assert {**second, "at": 0} == {"event": "reported", "at": 0, "trial": 0, "step": 1, "value": 1.5}


@pytest.mark.parametrize("line", [{"event": "promoted"}, {**record(opened()), "format": "slipway.sweep-log/1"}])
def test_a_log_of_another_version_is_refused(line):
    with pytest.raises(ValueError, match=r"sweep log: found .*, expected an event of slipway\.sweep-log/2"):
        parse(line)


def test_a_log_begins_with_the_event_opened():
    with pytest.raises(ValueError, match="expected the events opened and budgeted"):
        fold([Proposed(trial=0, parameters={}, until=9)])
    assert isinstance(fold(begun()).plan, Opened)


def test_a_sweep_that_two_processes_open_at_one_moment_is_open_once(tmp_path):
    barrier = threading.Barrier(8)

    def open_it() -> None:
        barrier.wait()
        SweepStore(tmp_path).open(*begun())

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert SweepStore(tmp_path).read() == [*begun()]


def test_a_sweep_that_an_earlier_version_opened_twice_can_be_read(tmp_path):
    store = SweepStore(tmp_path)
    store.append(*begun(), Proposed(trial=0, parameters={}, until=9), opened())
    assert store.state() == fold([*begun(), Proposed(trial=0, parameters={}, until=9)])


def test_an_event_that_cannot_follow_is_refused_in_words(tmp_path):
    other = dataclasses.replace(opened(), seed=99)
    with pytest.raises(ValueError, match="the sweep was opened with another plan before"):
        fold([*begun(), other])


def test_a_sweep_that_is_cancelled_is_closed_though_another_process_holds_its_lock(tmp_path):
    store = SweepStore(tmp_path)
    store.open(*begun())
    with lock.exclusive(tmp_path):
        assert store.cancel("a test", "nobody wants it")
        assert not store.cancel("a test", "and again")
    closed = store.closed()
    assert closed is not None and (closed.outcome, closed.reason) == ("stopped", "nobody wants it")
    state = store.state()
    assert state is not None and state.closed == closed
    assert store.read() == [*begun()], "its one writer logs it"


def test_a_sweep_that_is_complete_is_not_cancelled_any_more(tmp_path):
    events = log_of(*begun(), power_law)
    store = SweepStore(tmp_path)
    store.append(*events)
    store.cancel("a test", "too late")
    assert store.state() == fold(events)


def test_each_look_reads_what_is_new_and_gives_the_same_state_while_nothing_is(tmp_path):
    events = log_of(*begun(), power_law)
    writer, reader = SweepStore(tmp_path), SweepStore(tmp_path)
    for count in range(2, len(events), 7):
        written = len(writer.read())
        writer.append(*events[written:count])
        assert reader.state() == fold(events[:count])
        assert reader.state() is reader.state()


def test_a_sweep_whose_process_died_after_the_first_event_is_opened_by_the_next(tmp_path):
    store = SweepStore(tmp_path)
    store.append(opened())
    assert store.state() is None
    store.open(*begun())
    assert store.state() == fold(begun())


def test_a_request_counts_for_all_readers_at_once_and_its_writer_logs_it_once(tmp_path):
    store = SweepStore(tmp_path)
    store.open(*begun())
    store.ask("pause", "a test", "lunch")
    store.ask("budget", "a test", trials=20)
    for reader in (store, SweepStore(tmp_path)):
        sweep = reader.state()
        assert sweep is not None
        assert sweep.pause is not None
        assert (sweep.pause.why, sweep.budget.trials) == ("lunch", 20)
    assert store.read() == [*begun()]
    store.log_requests()
    store.log_requests()
    assert len(store.read()) == 4
    store.ask("resume", "a test")
    sweep = store.state()
    assert sweep is not None and sweep.pause is None


def test_a_budget_that_the_recipe_changed_is_asked_for_once_and_a_persons_stays_until_then(tmp_path):
    store = SweepStore(tmp_path)
    store.open(*begun())
    store.ask("budget", "a test", trials=20)
    store.open(*begun())
    sweep = store.state()
    assert sweep is not None and sweep.budget.trials == 20
    for _ in range(2):
        store.open(opened(), budgeted(parallel=7))
    sweep = store.state()
    assert sweep is not None and (sweep.budget.parallel, sweep.budget.trials) == (7, 8)
    assert len(list((tmp_path / "requests").iterdir())) == 2


def test_a_budget_that_is_none_is_refused(tmp_path):
    store = SweepStore(tmp_path)
    with pytest.raises(ValueError, match="has not been opened"):
        store.ask("pause", "a test")
    store.open(*begun())
    with pytest.raises(ValueError, match="parallel: found 0, expected 1 or more"):
        store.ask("budget", "a test", parallel=0)
