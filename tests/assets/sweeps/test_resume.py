"""A sweep that is killed at any moment continues with the same events."""

import itertools
from collections import Counter
from pathlib import Path

import pytest

from slipway.assets.sweeps.events import Closed, Decided, Ended, Event, Proposed, Resumed, Retried, record
from slipway.assets.sweeps.state import Parameters
from slipway.assets.sweeps.store import EVENTS, SweepStore
from slipway.trainer.base import journal
from tests.assets.sweeps.simulation import SCHEDULERS, CrashError, begun, continued, log_of, power_law

pytestmark = pytest.mark.pure

DECISIONS = (Proposed, Decided, Resumed, Retried, Closed)


def fragile(parameters: Parameters, step: int) -> float | None:
    """Like `power_law`, but deep models fail at their second rung."""
    if parameters["model.shape"] == "deep" and step == 3:
        raise CrashError("out of memory")
    return power_law(parameters, step)


KILLS = 46


def log_of_scheduler(name: str) -> list[Event]:
    """The log of a sweep with this scheduler that nothing interrupts; trials fail in it and are retried."""
    sampler = "tpe" if name == "promotion" else "random"
    return log_of(*begun(scheduler=SCHEDULERS[name], sampler=sampler, seed=3, retries=1, failed_trials=8), fragile)


@pytest.fixture(scope="module", params=SCHEDULERS)
def undisturbed(request):
    return log_of_scheduler(request.param)


def log_killed_at(folder: Path, events: list[Event], index: int) -> SweepStore:
    """The store of a controller that died with `index` events written and half of the next."""
    store = SweepStore(folder / str(index))
    store.append(*events[:index])
    with open(store.folder / EVENTS, "ab") as log:
        line = journal.frame(record(events[index]))
        log.write(line[: len(line) // 2])
    return store


def test_the_simulated_sweeps_have_every_kind_of_decision():
    logs = {name: log_of_scheduler(name) for name in SCHEDULERS}
    assert {type(event) for log in logs.values() for event in log} >= {*DECISIONS}
    assert any(event.parent is not None for event in logs["population"] if isinstance(event, Proposed))


def test_a_sweep_killed_46_times_with_torn_tails_decides_the_same(tmp_path, undisturbed):
    for index in spread(len(undisturbed)):
        store = log_killed_at(tmp_path, undisturbed, index)
        resumed = store.state()
        assert resumed is not None
        assert list(itertools.islice(continued(resumed, fragile), 12)) == undisturbed[index : index + 12]


def spread(events: int) -> list[int]:
    """As many places as there are kills, evenly along a log."""
    return sorted({2 + index * (events - 3) // (KILLS - 1) for index in range(KILLS)})


def test_a_sweep_killed_again_and_again_neither_loses_nor_repeats_a_trial(tmp_path, undisturbed):
    store = SweepStore(tmp_path / "sweep")
    store.append(*undisturbed[:2])
    for index, following in itertools.pairwise([*spread(len(undisturbed)), len(undisturbed)]):
        store = SweepStore(store.folder)  # another controller
        sweep = store.state()
        assert sweep is not None
        store.append(*itertools.islice(continued(sweep, fragile), following - index))
        if following < len(undisturbed):  # torn here, or nothing written at all
            with open(store.folder / EVENTS, "ab") as log:
                log.write(journal.frame(record(undisturbed[following]))[: following % 20])
    events = store.read()
    assert [record(event) | {"at": 0} for event in events] == [record(event) | {"at": 0} for event in undisturbed]
    proposals = Counter(event.trial for event in events if isinstance(event, Proposed))
    assert set(proposals.values()) == {1}
    attempts = Counter(event.trial for event in events if isinstance(event, Retried))
    assert Counter(event.trial for event in events if isinstance(event, Ended)) == {
        trial: 1 + attempts[trial] for trial in proposals
    }


def test_the_stamp_of_time_makes_no_difference(tmp_path, undisturbed):
    store = SweepStore(tmp_path / "sweep")
    store.append(*undisturbed)
    assert all(event.at > 0 for event in store.read())
    assert store.read() == undisturbed
