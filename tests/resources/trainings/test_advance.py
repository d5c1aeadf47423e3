"""One training advanced over the real launcher: claimed, submitted, stopped, resumed, given up."""

import dataclasses
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slipway.resources.errors import Unavailable
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.launchers.protocol import Job, JobState, Status
from slipway.resources.trainings.control import MISSING_GRACE_SECONDS
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.data import shards
from tests.conftest import Marked, until
from tests.resources.trainings.lab import (
    BRIEF,
    BY,
    ENDLESS,
    Lab,
    advance,
    at_once,
    happened,
    numbers,
    until_committed,
)


@dataclasses.dataclass(frozen=True)
class Unreachable(LocalLauncher):
    """A launcher that cannot be asked at all."""

    def poll(self, name: str) -> Status:
        raise Unavailable("the network is down")

    def submit(self, job: Job) -> None:
        raise Unavailable("the network is down")


def unreachable(lab: Lab) -> Unreachable:
    return Unreachable(lab.launcher.folder, lab.launcher.code, lab.launcher.fleet)


def everything_written(store: TrainingStore) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}


def test_a_wanted_training_is_claimed_submitted_and_succeeds(lab: Lab):
    store = lab.start_training(numbers(BRIEF))
    assert lab.advance(store) == [Action.CLAIM, Action.SUBMIT, Action.WAIT, Action.DONE]
    ended = store.exit()
    assert ended is not None and (ended.outcome, ended.step, ended.incarnation) == ("succeeded", BRIEF, 1)
    assert [commit.step for commit in store.commits()] == [BRIEF]
    [started] = happened(store, "started")
    assert started["world"] == 1


def test_a_training_that_is_done_stays_done(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(BRIEF))
    lab.advance(store)
    marked.until_gone()
    before = everything_written(store)
    store.want("run", BY, "once more")
    assert lab.advance(store) == [Action.DONE]
    assert everything_written(store) == before
    assert marked.pids() == []


def test_a_training_that_is_not_wanted_is_not_started(lab: Lab):
    store = lab.start_training(numbers(BRIEF))
    store.want("stop", BY, "changed my mind")
    assert lab.advance(store) == [Action.DONE]
    assert store.newest_claim() is None


def test_without_a_ready_node_it_waits(lab: Lab):
    store = lab.start_training(numbers(BRIEF))
    for node in lab.fleet.names:
        lab.fleet.mark_lost(node, "a test")
    assert lab.control().advance(store, BY) is Action.WAIT
    assert store.newest_claim() is None
    lab.fleet.restore("node-1")
    assert lab.control().advance(store, BY) is Action.CLAIM
    claim = store.newest_claim()
    assert claim is not None and claim.nodes == ("node-1",)


def test_it_runs_on_the_nodes_it_is_restricted_to(lab: Lab):
    store = lab.start_training(numbers(BRIEF), nodes=2)
    lab.control().advance(store, BY, nodes=("node-1",))
    claim = store.newest_claim()
    assert claim is not None and claim.nodes == ("node-1",)


@pytest.mark.slow
def test_many_controls_at_once_start_one_job(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS))
    controls = [lab.control() for _ in range(4)]
    at_once(*[lambda control=control: advance(control, store, Action.WAIT) for control in controls])
    until_committed(store)
    assert len(marked.running("slipway.trainer")) == 1
    assert [path.name for path in lab.launcher.folder.iterdir()] == [lab.job(store)]
    assert len(happened(store, "claimed")) == len(happened(store, "started")) == 1
    lab.stopped(store)


ADVANCE = """
import pickle, sys
from pathlib import Path
from slipway.resources.trainings.control import TrainingControl
from tests.resources.trainings.lab import advance
launcher, fleet, paths, store = pickle.loads(Path(sys.argv[1]).read_bytes())
print(advance(TrainingControl(launcher, fleet, paths, "a revision"), store)[-1].name)
"""


@pytest.mark.slow
def test_control_planes_in_processes_of_their_own_train_once(lab: Lab, tmp_path: Path):
    store = lab.start_training(numbers(BRIEF))
    (tmp_path / "order").write_bytes(pickle.dumps((lab.launcher, lab.fleet, lab.paths, store)))
    command = [sys.executable, "-c", ADVANCE, str(tmp_path / "order")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=lab.launcher.code) for _ in range(2)]
    assert [process.communicate()[0] for process in both] == ["DONE\n", "DONE\n"]
    assert len(happened(store, "started")) == 1
    assert [event["step"] for event in happened(store, "step")] == list(range(1, BRIEF + 1))


@pytest.mark.slow
def test_a_training_that_is_not_wanted_any_more_leaves_a_checkpoint_of_the_step_reached(lab: Lab):
    store = lab.start_training(numbers(ENDLESS, every=ENDLESS))
    lab.started(store)
    until(lambda: happened(store, "step"), "the first step")
    assert lab.stopped(store) == [Action.STOP, Action.RECORD, Action.DONE]
    ended, [commit] = store.exit(), store.commits()
    assert ended is not None and (ended.outcome, ended.reason) == ("stopped", "asked to stop")
    assert ended.step == commit.step == happened(store, "step")[-1]["step"]


@pytest.mark.slow
def test_wanted_again_it_goes_on_where_it_was_stopped(lab: Lab):
    store = lab.start_training(numbers(ENDLESS, every=ENDLESS))
    lab.started(store)
    until(lambda: happened(store, "step"), "the first step")
    lab.stopped(store)
    reached = store.commits()[-1].step
    store.want("run", BY, "go on")
    lab.started(store)
    [restored] = until(lambda: happened(store, "restored"), "the checkpoint to be read")
    assert (restored["step"], restored["incarnation"]) == (reached, 2)
    until(lambda: [event for event in happened(store, "step") if event["incarnation"] == 2], "the next step")
    lab.stopped(store)
    steps = [event["step"] for event in happened(store, "step")]
    assert steps == list(range(1, len(steps) + 1))


def test_a_launcher_that_cannot_be_asked_changes_nothing(lab: Lab):
    store = lab.start_training(numbers(ENDLESS, every=ENDLESS))
    lab.started(store)
    until(lambda: happened(store, "started"), "the trainer")
    before = [path for path in everything_written(store) if path.parent.name in ("claims", "exits", "jobs", "desired")]
    away = lab.control(unreachable(lab))
    for want in ("run", "stop"):
        store.want(want, BY, "while the network is down")
        with pytest.raises(Unavailable):
            away.advance(store, BY)
    store.want("run", BY, "all the same")
    assert lab.launcher.poll(lab.job(store)).state is JobState.RUNNING
    assert lab.control().advance(store, BY) is Action.WAIT
    after = [path for path in everything_written(store) if path.parent.name in ("claims", "exits", "jobs", "desired")]
    assert sorted(before) == sorted(path for path in after if path.stem not in ("000002", "000003"))
    lab.stopped(store)


def test_a_claim_that_could_not_be_submitted_is_submitted_later(lab: Lab):
    store = lab.start_training(numbers(BRIEF))
    away = lab.control(unreachable(lab))
    assert away.advance(store, BY) is Action.CLAIM
    with pytest.raises(Unavailable):
        away.advance(store, BY)
    assert lab.advance(store) == [Action.SUBMIT, Action.WAIT, Action.DONE]
    claim = store.newest_claim()
    assert claim is not None and claim.token.incarnation == 1


def test_a_job_whose_keeper_could_not_be_started_is_started_later(lab: Lab, tmp_path: Path):
    """The submitter got as far as the job object: it is pending, and no process works on it."""
    store = lab.start_training(numbers(BRIEF))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "slipway.py").touch()
    broken = lab.control(dataclasses.replace(lab.launcher, code=tmp_path / "broken"))
    assert broken.advance(store, BY) is Action.CLAIM
    with pytest.raises(Unavailable, match="keeper did not start"):
        broken.advance(store, BY)
    assert lab.launcher.poll(lab.job(store)).state is JobState.PENDING
    assert lab.advance(store) == [Action.SUBMIT, Action.WAIT, Action.DONE]
    assert len(happened(store, "claimed")) == 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overtaken(LocalLauncher):
    """A launcher that has the training stopped before it submits."""

    lab: Lab
    store: TrainingStore

    def submit(self, job: Job) -> None:
        self.lab.stopped(self.store)
        super().submit(job)


def test_a_job_that_was_stopped_while_it_was_being_submitted_does_not_run_on(lab: Lab):
    store = lab.start_training(numbers(ENDLESS))
    lab.advance(store, Action.CLAIM)
    slow = Overtaken(lab.launcher.folder, lab.launcher.code, lab.launcher.fleet, lab=lab, store=store)
    assert lab.control(slow).advance(store, BY) is Action.SUBMIT
    until(lambda: lab.launcher.poll(lab.job(store)).state.terminal, "the job to end")
    ended = store.exit()
    assert ended is not None and ended.outcome == "stopped"


def test_a_job_that_cannot_be_started_as_described_ends_with_the_reason(lab: Lab):
    store = lab.start_training(numbers(BRIEF), failures=1)
    lab.launcher.submit(Job(job_name(store.id, 1), ("true",), {}, nodes=("node-0",)))
    assert lab.advance(store) == [Action.CLAIM, Action.SUBMIT, Action.GIVE_UP, Action.DONE]
    ended = store.exit()
    assert ended is not None and "already submitted" in ended.reason


@pytest.mark.slow
def test_a_job_deleted_by_hand_is_seen_missing_twice_and_then_started_again(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    until_committed(store)
    shutil.move(lab.launcher.folder / lab.job(store), lab.root / "deleted")
    marked.until_gone()
    now = time.time()
    control = lab.control(clock=lambda: now)
    assert [control.advance(store, BY) for _ in range(3)] == [Action.WAIT] * 3
    now += MISSING_GRACE_SECONDS
    assert [control.advance(store, BY) for _ in range(3)] == [Action.RECORD, Action.CLAIM, Action.SUBMIT]
    ended = happened(store, "ended")[-1]
    assert "deleted by hand" in ended["reason"] and "started again" in ended["reason"]
    assert "deleted by hand" in happened(store, "claimed")[1]["cause"]
    until(lambda: happened(store, "restored"), "the next incarnation to read the checkpoint")
    lab.stopped(store)


@pytest.mark.slow
def test_a_job_that_was_missing_once_and_is_back_is_left_running(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    now = time.time()
    control = lab.control(clock=lambda: now)
    folder = lab.launcher.folder / lab.job(store)
    until_committed(store)
    [keeper] = marked.running("slipway.resources.launchers.local.keeper")
    os.kill(keeper, signal.SIGSTOP)
    folder.rename(lab.root / "hidden")
    assert control.advance(store, BY) is Action.WAIT
    (lab.root / "hidden").rename(folder)
    os.kill(keeper, signal.SIGCONT)
    now += MISSING_GRACE_SECONDS
    assert control.advance(store, BY) is Action.WAIT
    now += MISSING_GRACE_SECONDS
    assert control.advance(store, BY) is Action.WAIT
    assert len(happened(store, "claimed")) == 1
    lab.stopped(store)


def test_a_training_that_cannot_start_is_given_up_with_a_reason(lab: Lab):
    unusable = numbers(BRIEF) | {"run": {"steps": 0}}
    store = lab.start_training(unusable, failures=2)
    once = [Action.CLAIM, Action.SUBMIT, Action.WAIT, Action.RECORD]
    assert lab.advance(store) == [*once, *once, Action.GIVE_UP, Action.DONE]
    desired, ended = store.desired(), store.exit()
    assert desired is not None and desired.want == "stop"
    assert ended is not None and ended.reason.startswith("node-0 ended with exit code 2; node-0: trainer: ")
    assert ended.reason.endswith("field run.steps: expected a number above 0")
    assert desired.why == (
        "2 failures of class unknown in a row without a new checkpoint, expected 1 at most; "
        f"incarnation 2 failed: {ended.reason}"
    )


@pytest.mark.slow
def test_a_training_whose_snapshot_is_away_goes_on_by_itself_when_the_snapshot_is_back(lab: Lab):
    manifest = shards.manifest_path(lab.durable, lab.snapshot)
    manifest.rename(lab.root / "away")
    store = lab.start_training(numbers(BRIEF), failures=1)
    lab.advance(store, Action.RECORD)
    [failed] = store.read().failures
    assert str(manifest) in failed.reason and store.read().should_run
    (lab.root / "away").rename(manifest)
    assert lab.advance(store)[-1] is Action.DONE
    ended = store.exit()
    assert ended is not None and (ended.outcome, ended.incarnation) == ("succeeded", 2)


def test_a_training_that_diverges_is_given_up(lab: Lab):
    configuration = numbers(BRIEF) | {"optimizer": {"learning_rate": 1e30, "clip": 1e30}}
    store = lab.start_training(configuration, failures=1)
    assert lab.advance(store)[-2:] == [Action.GIVE_UP, Action.DONE]
    ended = store.exit()
    assert ended is not None and ended.outcome == "failed"
    assert store.commits() == []
