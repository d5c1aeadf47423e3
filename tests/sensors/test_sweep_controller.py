"""A sweep over real trainings: trials run at once, controllers die, and no trial is lost or made twice."""

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.assets import keys
from slipway.assets.sweeps.assets import current_subject, open_sweep
from slipway.assets.sweeps.controller import Controller
from slipway.assets.sweeps.decisions import closing
from slipway.assets.sweeps.events import Ended, Proposed, Started
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from slipway.assets.sweeps.trials import trials_of
from slipway.assets.training import run_policy, specification
from slipway.recipes.training import ModelRecipe
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import lock
from slipway.trainer.base.paths import CODE
from slipway.trainer.base.processes import parent_of
from slipway.trainer.checkpoint.disk import encryption
from slipway.trainer.record import fence, ledger
from tests.conftest import Marked, until
from tests.sensors.platform import SEARCH, Platform

TRIALS, PARALLEL = 4, 2

CONTROL = """
import pickle, sys
from pathlib import Path
from slipway.assets.sweeps.controller import Controller
from slipway.resources.compute.embedded import EmbeddedCompute
from slipway.resources.tiers import Tiers
store, subject, of_compute, of_tiers = pickle.loads(Path(sys.argv[1]).read_bytes())
compute = EmbeddedCompute(**of_compute)
Controller(store, subject, compute.control(Tiers(**of_tiers)), compute.poll_seconds).run(lambda sweep: None)
"""


@pytest.fixture
def store(platform: Platform) -> SweepStore:
    return open_sweep(subject(platform), platform.tiers)


def subject(platform: Platform) -> SearchSubject:
    return current_subject(platform.recipes.sweeps[SEARCH], platform.recipe, platform.tiers, platform.tracking)


def controller(platform: Platform, store: SweepStore) -> Controller:
    return Controller(store, subject(platform), platform.control, platform.compute.poll_seconds)


def test_a_run_that_finds_the_sweep_in_other_hands_says_whose_and_ends_with_the_sweep(
    platform: Platform, store: SweepStore, caplog: pytest.LogCaptureFixture
):
    assert store.cancel("a test", "nobody wants it")
    with lock.exclusive(store.folder):
        final_state = controller(platform, store).run(lambda sweep: None)
    assert final_state.closed is not None and final_state.closed.reason == "nobody wants it"
    assert caplog.text.count(f"{store.folder} is locked by process {os.getpid()}") == 1


def controlling(
    platform: Platform, store: SweepStore, searched: SearchSubject | None = None
) -> "subprocess.Popen[bytes]":
    """A controller in a process of its own."""
    order = platform.root / "controller.pickle"
    resources = platform.compute.model_dump(), platform.tiers.model_dump()
    order.write_bytes(pickle.dumps((store, searched or subject(platform), *resources)))
    return subprocess.Popen([sys.executable, "-c", CONTROL, str(order)], cwd=CODE)


def state(store: SweepStore) -> SweepState:
    sweep_state = store.state()
    assert sweep_state is not None
    return sweep_state


def trials(store: SweepStore) -> Iterator[TrainingStore]:
    known = trials_of(store)
    return known.stores()


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
    result = platform.materialize([keys.key(SEARCH, "sweep")])
    assert result.success
    store = open_sweep(subject(platform), platform.tiers)
    sweep = state(store)
    assert sweep.closed is not None and sweep.closed.outcome == "complete"
    assert len(sweep.trials) == TRIALS and most_at_once(store) == PARALLEL
    assert {trial.state for trial in sweep.trials.values()} <= {"completed", "stopped"}
    for number, trial in sweep.trials.items():
        [materialization] = platform.materializations("trial", f"{store.sweep}.{number}", SEARCH)
        assert materialization.metadata["state"].value == trial.state
        hours = materialization.metadata["rank_hours"].value
        assert isinstance(hours, float) and hours > 0
    [materialized] = result.asset_materializations_for_node("tiny_search__sweep")
    assert materialized.metadata["best_validation_loss"].value == sweep.closed.best_value
    assert platform.trainings.ids() == [platform.finished().id]


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
    assert Counter(event.trial for event in events if isinstance(event, Proposed)) == Counter(range(TRIALS))
    assert Counter(event.trial for event in events if isinstance(event, Ended)) == Counter(range(TRIALS))
    assert [started(trial) for trial in trials(store)] == [[1]] * TRIALS
    assert most_at_once(store) == PARALLEL
    assert controller(platform, store).run(lambda sweep: None) == sweep


@pytest.mark.slow
def test_a_trial_whose_job_is_killed_starts_again_under_its_own_number_and_costs_no_retry(
    platform: Platform, store: SweepStore, marked: Marked
):
    """A rank that dies is started anew inside its job; the death of its supervisor ends the job, by no fault of the
    trial."""
    process = controlling(platform, store)
    rank = until(lambda: marked.running("slipway.trainer"), "the first trial")[0]
    supervisor = parent_of(rank)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    assert process.wait() == 0
    sweep = state(store)
    assert sweep.closed is not None and sweep.closed.outcome == "complete"
    assert [trial.attempt for trial in sweep.trials.values()] == [0] * TRIALS
    claims = [trials_of(store).store(f"{store.sweep}.{number}").newest_claim() for number in range(TRIALS)]
    assert sorted(claim.token.incarnation for claim in claims if claim) == [1] * (TRIALS - 1) + [2]


def encrypted(platform: Platform) -> SearchSubject:
    """The sweep of a recipe that encrypts its checkpoints, and says more about how it runs."""
    key = platform.root / "key"
    key.write_text("ab" * 32)
    value = platform.recipe.model_dump(mode="json")
    value["storage"]["key_file"] = str(key)
    value["layout"]["activations"] = "recompute"
    value["observation"]["window_steps"] = 7
    value["hardware"]["timeout_seconds"] = 77.0
    value["recovery"]["pending_seconds"] = 7.0
    value["placement"] |= {"ranks_per_node": 2, "staging": "streaming", "kubernetes": {"queue": "a", "priority": "b"}}
    recipe = ModelRecipe.model_validate(value, strict=False)
    return current_subject(platform.recipes.sweeps[SEARCH], recipe, platform.tiers, platform.tracking)


class EnoughSeen(Exception):
    """The test has seen enough of a controller."""


def test_a_trial_has_the_terms_that_a_training_of_its_recipe_has(platform: Platform):
    searched = encrypted(platform)
    trial = searched.trial({"optimizer.learning_rate": 0.01})
    policy = searched.trial_terms(trial, "search-1", 0, {})
    expected = run_policy(searched.training, {"sweep": "search-1", "trial": 0})
    assert policy == dataclasses.replace(expected, max_nodes=1, failures_without_checkpoint=1)
    assert policy.operation["storage"]["key_file"]


@pytest.mark.slow
def test_the_checkpoints_of_the_trials_of_an_encrypted_recipe_are_encrypted(platform: Platform, marked: Marked):
    searched = encrypted(platform)
    store = open_sweep(searched, platform.tiers)

    def look(sweep: SweepState) -> None:
        if any(trial.commits() for trial in trials(store)):
            store.append(closing(sweep, "stopped", "a test")) if sweep.closed is None else None

    Controller(store, searched, platform.control, platform.compute.poll_seconds).run(look)
    commits = [commit for trial in trials(store) for commit in trial.commits()]
    folders = [platform.home.durable / commit.folder for commit in commits]
    written = [path for folder in folders for path in folder.glob("*.safetensors")]
    assert written and all(path.read_bytes().startswith(encryption.MAGIC) for path in written)


def begun(platform: Platform, store: SweepStore) -> TrainingStore:
    """A sweep whose first trial is started, as the log has it, on a fleet without a ready node."""
    for node in platform.compute.names:
        platform.compute.fleet().mark_lost(node, "a test")
    parameters = {"optimizer.learning_rate": 0.01}
    store.append(Proposed(trial=0, parameters=parameters, until=100), Started(trial=0, job="a job", nodes=("node-0",)))
    recipe = subject(platform).trial(parameters)
    described = specification(recipe, subject(platform).snapshot, platform.tiers)
    trial = trials_of(store).propose(described, run_policy(recipe), id=f"{store.sweep}.0")
    trial.want("run", "a test", "a test")
    trial.claim(1, ("node-0",), "a test", "a test")
    return trial


def first_end(platform: Platform, store: SweepStore) -> Ended:
    """How the first trial ended, as a controller sees it."""

    def look(sweep: SweepState) -> None:
        if any(isinstance(event, Ended) for event in store.read()):
            raise EnoughSeen

    with pytest.raises(EnoughSeen):
        Controller(store, subject(platform), platform.control, 0.01).run(look)
    return next(event for event in store.read() if isinstance(event, Ended))


def test_a_trial_without_a_last_value_ends_without_one(platform: Platform, store: SweepStore):
    trial = begun(platform, store)
    ledger.note(trial.folder, fence.Token(1), "rank-0", "validated", step=50, loss=1.0)
    trial.record_exit(1, "succeeded", "all steps done", "a test")
    ended = first_end(platform, store)
    assert (ended.outcome, ended.value) == ("completed", None)
    assert ended.reason == "its ledger has no validation loss of step 100"
    assert state(store).trials[0].reports == {50: 1.0}


def test_a_trial_whose_parameters_the_recipe_does_not_accept_any_more_fails_alone(
    platform: Platform, store: SweepStore
):
    store.append(Proposed(trial=0, parameters={"optimizer.learning_rate": -1.0}, until=100))
    ended = first_end(platform, store)
    assert ended.outcome == "failed" and "optimizer.learning_rate: found -1.0" in ended.reason


@pytest.mark.parametrize("damage", ["a folder", "a flipped byte"])
def test_a_trial_that_cannot_be_read_keeps_no_other_from_going_on(platform: Platform, store: SweepStore, damage: str):
    trial = begun(platform, store)
    for path in list(trial.folder.glob("terms.*")):
        if damage == "a folder":
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    platform.compute.fleet().restore("node-1")
    store.append(Proposed(trial=1, parameters={"optimizer.learning_rate": -1.0}, until=100))

    def look(sweep: SweepState) -> None:
        if sweep.trials[1].ended is not None:
            raise EnoughSeen

    with pytest.raises(EnoughSeen):
        Controller(store, subject(platform), platform.control, 0.01).run(look)
    assert state(store).trials[0].ended is None


def test_the_trials_of_a_closed_sweep_are_stopped(platform: Platform, store: SweepStore, marked: Marked):
    process = controlling(platform, store)
    until(lambda: marked.running("slipway.trainer"), "a trial")
    process.kill()
    process.wait()
    store.append(closing(state(store), "stopped", "a test"))
    sweep = controller(platform, store).run(lambda sweep: None)
    assert sweep.running == []
    assert not [trial for trial in trials(store) if trial.read().should_run]
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
