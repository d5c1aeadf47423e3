"""The tick of a sensor: each subject alone, what is wrong is shown once and tried again, what the tick gives back."""

import functools
from collections.abc import Iterator

import dagster as dg
import pytest

from slipway.assets import keys, subjects
from slipway.resources.errors import Unavailable
from slipway.sensors.support import faults
from slipway.sensors.support import tick as tick_module
from slipway.sensors.support.tick import NAMED, Tick

WHO = subjects.training("tiny-0123456789ab")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def tick(instance: dg.DagsterInstance) -> Tick:
    return after(instance, None)


def after(instance: dg.DagsterInstance, cursor: str | None) -> Tick:
    return Tick(dg.build_sensor_context(instance, cursor=cursor), "a_sensor")


def ended(tick: Tick) -> str | None:
    """What Dagster keeps of a tick for the next one."""
    tick.result()
    return tick._context.cursor


def fail(error: Exception) -> None:
    raise error


def skipped(tick: Tick) -> str:
    """Why the tick had nothing to do, empty when it does not say so."""
    reason = tick.result().skip_reason
    return str(reason.skip_message) if isinstance(reason, dg.SkipReason) else str(reason or "")


ERRORS = [
    Unavailable("the network is down"),
    ValueError("half a record"),
    IsADirectoryError(21, "Is a directory", "/a/record"),
    IndexError("list index out of range"),
    AssertionError("two events"),
    TypeError("NoneType"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_is_wrong_with_one_subject_does_not_keep_the_tick_from_the_next(tick: Tick, error: Exception):
    visited: list[str] = []

    def act(name: str) -> None:
        visited.append(name)
        raise error

    tick.for_each(("one", "two"), subjects.training, act)
    assert visited == ["one", "two"]


def test_what_is_wrong_is_observed_on_its_subject_with_what_to_do(tick: Tick):
    tick.visit(WHO, lambda: fail(IsADirectoryError(21, "Is a directory", "/a/record")))
    [observation] = tick.events
    assert isinstance(observation, dg.AssetObservation)
    assert (observation.asset_key, observation.partition) == (keys.key("tiny", "training"), "tiny-0123456789ab")
    assert observation.metadata["problem"].value == "[Errno 21] Is a directory: '/a/record'"
    assert str(observation.metadata["what_to_do"].value).startswith("/a/record: make sure that it exists")
    assert observation.metadata["noticed_by"].value == "a_sensor"


def test_the_same_is_not_reported_again_and_something_else_is(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(faults, "FIRST_SECONDS", 0.0)
    cursor, problems = None, []
    for word in ("this", "this", "that"):
        tick = after(instance, cursor)
        tick.visit(WHO, functools.partial(fail, ValueError(word)))
        problems += [event.metadata["problem"].value for event in tick.events if isinstance(event, dg.AssetObservation)]
        cursor = ended(tick)
    assert problems == ["this", "that"]


def test_what_was_well_in_between_is_reported_again(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(faults, "FIRST_SECONDS", 0.0)
    cursor, observations = None, 0
    for fails in (True, False, True):
        tick = after(instance, cursor)
        tick.visit(WHO, functools.partial(fail, ValueError("this")) if fails else lambda: None)
        observations += len(tick.events)
        cursor = ended(tick)
    assert observations == 2


def test_a_subject_that_failed_rests_twice_as_long_each_time():
    cursor, tried = "", []
    for second in range(40):
        known = faults.Faults(cursor, "a_sensor", clock=functools.partial(float, 1000 + second))
        if not known.rests(WHO):
            tried.append(second)
            known.add(WHO, ValueError("this"))
        cursor = known.cursor()
    assert tried == [0, 2, 6, 14, 30]


def test_a_clock_that_was_set_back_keeps_no_subject_from_being_tried(instance: dg.DagsterInstance):
    tick = after(instance, None)
    tick.visit(WHO, lambda: fail(ValueError("this")))
    again = faults.Faults(ended(tick), "a_sensor", clock=lambda: 0.0)
    assert not again.rests(WHO)


def test_what_cannot_be_asked_is_no_fault_and_is_tried_by_the_next_tick(instance: dg.DagsterInstance):
    tick = after(instance, None)
    tick.visit(WHO, lambda: fail(Unavailable("the network is down")))
    assert tick.events == [] and not ended(tick)


@pytest.mark.parametrize("cursor", ["{", "[]", '{"a": 1}', '{"a": [1, 2]}', "5"])
def test_a_cursor_that_is_not_ours_is_as_none(instance: dg.DagsterInstance, cursor: str):
    tick = after(instance, cursor)
    assert tick.visit(WHO, lambda: None)


def test_subjects_that_a_tick_did_not_reach_come_first_in_the_next(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tick_module, "TICK_SECONDS", 100.0)
    visited: list[str] = []

    def act(name: str) -> None:
        visited.append(name)
        if name == "b":
            monkeypatch.setattr(tick_module, "TICK_SECONDS", 0.0)

    after(instance, None).for_each("abcd", subjects.training, act)
    assert visited == ["a", "b"]
    monkeypatch.setattr(tick_module, "TICK_SECONDS", 100.0)
    visited.clear()
    after(instance, None).for_each("abcd", subjects.training, visited.append)
    assert visited == ["c", "d", "a", "b"]


def test_a_tick_with_nothing_to_do_says_what_it_postponed(tick: Tick):
    tick.visit(subjects.training("a-training"), lambda: fail(Unavailable("the network is down")))
    assert skipped(tick) == "a-training: the launcher or the fleet cannot be asked: the network is down"


def test_a_tick_with_something_to_do_does_it_whatever_it_postponed(tick: Tick):
    tick.postpone("later")
    tick.requests.append(dg.RunRequest())
    assert skipped(tick) == "" and len(tick.result().run_requests or []) == 1


def test_a_long_list_of_reasons_is_cut(tick: Tick):
    for number in range(NAMED + 2):
        tick.postpone(f"reason {number}")
    assert skipped(tick).endswith("; and 2 more, see the sensor's log")
