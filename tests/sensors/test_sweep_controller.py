"""A sweep over real trainings: trials run at once, controllers die, and no trial is lost or made twice."""

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from assets import keys
from assets.sweeps.assets import current_subject, open_sweep
from assets.sweeps.controller import Controller, Subject, trials_of
from assets.sweeps.decisions import closing
from assets.sweeps.events import Asked, Ended, Started
from assets.sweeps.state import Sweep
from assets.sweeps.store import SweepStore
from resources.compute import CODE
from resources.training_store import TrainingStore
from tests.conftest import Marked, until
from tests.sensors.platform import SEARCH, Platform

TRIALS, PARALLEL = 4, 2

CONTROL = """
import pickle, sys
from pathlib import Path
pickle.loads(Path(sys.argv[1]).read_bytes()).run(lambda sweep: None)
"""


@pytest.fixture
def store(platform: Platform) -> SweepStore:
    return open_sweep(subject(platform), platform.tiers)


def subject(platform: Platform) -> Subject:
    return current_subject(platform.recipes.sweeps[SEARCH], platform.recipe, platform.tiers, platform.tracking)


def controller(platform: Platform, store: SweepStore) -> Controller:
    return Controller(store, subject(platform), platform.control, platform.compute.poll_seconds)


def controlling(platform: Platform, store: SweepStore) -> "subprocess.Popen[bytes]":
    """A controller in a process of its own."""
    order = platform.root / "controller.pickle"
    order.write_bytes(pickle.dumps(controller(platform, store)))
    return subprocess.Popen([sys.executable, "-c", CONTROL, str(order)], cwd=CODE)


def state(store: SweepStore) -> Sweep:
    found = store.state()
    assert found is not None
    return found


def trials(store: SweepStore) -> Iterator[TrainingStore]:
    known = trials_of(store)
    return (known.store(id) for id in known.known())


def started(store: TrainingStore) -> list[int]:
    """The incarnations that really trained."""
    return [event["incarnation"] for event in store.events() if event["event"] == "started"]


def most_at_once(store: SweepStore) -> int:
    running = most = 0
    for event in store.read():
        running += isinstance(event, Started) - isinstance(event, Ended)
        most = max(most, running)
    return most


@pytest.mark.slow
def test_materialising_a_sweep_runs_its_trials_and_shows_each_of_them(platform: Platform):
    result = platform.materialise([keys.key(SEARCH, "sweep")])
    assert result.success
    store = open_sweep(subject(platform), platform.tiers)
    sweep = state(store)
    assert sweep.closed is not None and sweep.closed.outcome == "complete"
    assert len(sweep.trials) == TRIALS and most_at_once(store) == PARALLEL
    assert {trial.state for trial in sweep.trials.values()} <= {"completed", "stopped"}
    for number, trial in sweep.trials.items():
        [shown] = platform.materialisations("trial", f"{store.sweep}.{number}", SEARCH)
        assert shown.metadata["state"].value == trial.state
    [materialised] = result.asset_materializations_for_node("tiny_search__sweep")
    assert materialised.metadata["best_validation_loss"].value == sweep.closed.best_value
    assert platform.trainings.known() == [platform.finished().id]


@pytest.mark.slow
def test_a_sweep_whose_controller_is_killed_is_finished_by_another(
    platform: Platform, store: SweepStore, marked: Marked
):
    """The other one is there from the beginning, and waits: a log has one writer."""
    first = controlling(platform, store)
    until(lambda: [event for event in store.read() if isinstance(event, Started)], "the first trial")
    second = controlling(platform, store)
    until(lambda: [event for event in store.read() if isinstance(event, Ended)], "the end of a trial")
    first.kill()
    first.wait()
    assert state(store).closed is None
    assert second.wait() == 0
    sweep = state(store)
    assert sweep.closed is not None and sweep.closed.outcome == "complete"
    events = store.read()
    assert Counter(event.trial for event in events if isinstance(event, Asked)) == Counter(range(TRIALS))
    assert Counter(event.trial for event in events if isinstance(event, Ended)) == Counter(range(TRIALS))
    assert [started(trial) for trial in trials(store)] == [[1]] * TRIALS
    assert most_at_once(store) == PARALLEL
    assert controller(platform, store).run(lambda sweep: None) == sweep


@pytest.mark.slow
def test_a_trial_whose_rank_is_killed_is_tried_again_under_its_own_number(
    platform: Platform, store: SweepStore, marked: Marked
):
    process = controlling(platform, store)
    rank = until(lambda: marked.running("trainer"), "the first trial")[0]
    os.kill(rank, signal.SIGKILL)
    assert process.wait() == 0
    sweep = state(store)
    assert sweep.closed is not None and sweep.closed.outcome == "complete"
    assert sorted(trial.attempt for trial in sweep.trials.values()) == [0, 0, 0, 1]
    [again] = [trial for trial in sweep.trials.values() if trial.attempt]
    claim = trials_of(store).store(f"{store.sweep}.{again.number}").newest_claim()
    assert claim is not None and claim.token.incarnation == 2


def test_the_trials_of_a_closed_sweep_are_stopped(platform: Platform, store: SweepStore, marked: Marked):
    process = controlling(platform, store)
    until(lambda: marked.running("trainer"), "a trial")
    process.kill()
    process.wait()
    store.append(closing(state(store), "stopped", "a test"))
    sweep = controller(platform, store).run(lambda sweep: None)
    assert sweep.running == []
    assert not [trial for trial in trials(store) if trial.wanted]
    marked.until_gone()


def test_a_sweep_waits_while_the_fleet_cannot_be_asked(platform: Platform, store: SweepStore):
    """Every node's mark is unreadable: nothing is started, and nothing breaks."""
    marks = [Path(platform.home.nodes) / node / "lost.json" for node in platform.compute.names]
    for mark in marks:
        mark.mkdir(parents=True)
    process = controlling(platform, store)
    until(lambda: state(store).running, "the first trial to be asked for")
    assert process.poll() is None and not [event for event in store.read() if isinstance(event, Started)]
    for mark in marks:
        mark.rmdir()
    until(lambda: [event for event in store.read() if isinstance(event, Started)], "the first trial")
    process.kill()
    process.wait()
    store.append(closing(state(store), "stopped", "a test"))
    controller(platform, store).run(lambda sweep: None)
