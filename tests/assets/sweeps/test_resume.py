"""A sweep that is killed at any moment continues with the same events."""

import itertools
from collections import Counter
from pathlib import Path

import pytest

from assets.sweeps.events import Asked, Closed, Decided, Ended, Event, Retried, record
from assets.sweeps.space import Parameters
from assets.sweeps.store import EVENTS, SweepStore
from tests.assets.sweeps.simulation import CrashError, continued, opened, power_law, whole
from trainer.base import journal

pytestmark = pytest.mark.pure

DECISIONS = (Asked, Decided, Retried, Closed)


def fragile(parameters: Parameters, step: int) -> float | None:
    """Like `power_law`, but deep models fail at their second rung."""
    if parameters["model.shape"] == "deep" and step == 3:
        raise CrashError("out of memory")
    return power_law(parameters, step)


PLAN = opened(sampler="tpe", seed=3, retries=1, failed_trials=8)


@pytest.fixture(scope="module")
def undisturbed():
    return whole(PLAN, fragile)


def log_killed_at(folder: Path, events: list[Event], index: int) -> SweepStore:
    """The store of a controller that died with `index` events written and half of the next."""
    store = SweepStore(folder / str(index))
    store.append(*events[:index])
    with open(store.folder / EVENTS, "ab") as log:
        line = journal.frame(record(events[index]))
        log.write(line[: len(line) // 2])
    return store


def test_the_simulated_sweep_has_every_kind_of_decision(undisturbed):
    assert {type(event) for event in undisturbed} >= {*DECISIONS}
    assert {event.verdict for event in undisturbed if isinstance(event, Decided)} == {"go on", "stop"}


def test_a_sweep_killed_at_any_event_continues_with_the_same_events(tmp_path, undisturbed):
    for index in range(1, len(undisturbed)):
        store = log_killed_at(tmp_path, undisturbed, index)
        resumed = store.state()
        assert resumed is not None
        assert [*undisturbed[:index], *continued(resumed, fragile)] == undisturbed


def test_a_sweep_killed_at_every_event_neither_loses_nor_repeats_a_trial(tmp_path, undisturbed):
    store = SweepStore(tmp_path / "sweep")
    store.append(PLAN)
    for index in itertools.count(1):
        sweep = store.state()
        assert sweep is not None
        upcoming = next(continued(sweep, fragile), None)
        if upcoming is None:
            break
        with open(store.folder / EVENTS, "ab") as log:
            log.write(journal.frame(record(upcoming))[: index % 20])  # torn here, or nothing written at all
        store.append(upcoming)
    events = store.read()
    assert events == undisturbed
    assert Counter(event.trial for event in events if isinstance(event, Asked)) == dict.fromkeys(range(8), 1)
    attempts = Counter(event.trial for event in events if isinstance(event, Retried))
    assert Counter(event.trial for event in events if isinstance(event, Ended)) == {
        trial: 1 + attempts[trial] for trial in range(8)
    }


def test_the_stamp_of_time_makes_no_difference(tmp_path, undisturbed):
    store = SweepStore(tmp_path / "sweep")
    store.append(*undisturbed)
    assert all(event.at > 0 for event in store.read())
    assert store.read() == undisturbed
