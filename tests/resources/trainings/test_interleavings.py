"""Interleavings of claims, commits, supersedes, wants, stops and crashes: nothing acknowledged is lost or run twice."""

import functools
import itertools
import shutil
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from slipway.resources.fleet.protocol import Node
from slipway.resources.launchers.protocol import Job, JobState, Status
from slipway.resources.trainings.budgets import LONGEST_REST
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.faults import TrainingFault
from slipway.resources.trainings.job import Paths
from slipway.resources.trainings.records import Desired, RunPolicy, Specification
from slipway.resources.trainings.store import Trainings
from slipway.trainer.base import codec
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Commit, Exit, Superseded, Token
from tests.schedule import Actor, Schedule

pytestmark = pytest.mark.pure

STEPS = 4
OBSERVED_FOLDERS = {files.CLAIMS, files.COMMITS, files.EXITS, files.DESIRED, files.JOBS}
FAULT = TrainingFault("no progress", ("node-0",))


class World:
    """A cluster of one node, two processes of the control plane, and one training, on one schedule.

    It is the launcher of the jobs and the fleet too: both are at hand at once, and never fail.
    """

    scheduled = False

    def __init__(self, seed: int, root: Path, kills: float) -> None:
        self.schedule = Schedule(seed, OBSERVED_FOLDERS, kills)
        self.chance = self.schedule.chance
        run_policy = RunPolicy(1, 1, 1, no_progress_seconds=60.0, failures_without_checkpoint=1_000)
        self.store = Trainings(root).propose(Specification("tiny", {}, "0" * 64, "0" * 64), run_policy)
        self.later = 0.0
        """Seconds by which the clock of the control plane is ahead: no rest before a start is waited for."""
        self.control = TrainingControl(self, self, Paths(root, "nvme"), clock=lambda: time.time() + self.later)
        self.jobs: dict[str, JobState] = {}
        self.ranks: dict[str, Actor] = {}
        self.stopping: set[str] = set()
        self.acknowledged: list[Commit] = []
        self.succeeded: list[Token] = []
        self.claimed: list[Token] = []
        self.superseded: list[Token] = []

    # The launcher and the fleet.

    def nodes(self) -> list[Node]:
        return [Node("node-0", ready=True)]

    def submit(self, job: Job) -> None:
        if job.name in self.jobs:
            return
        self.jobs[job.name] = JobState.RUNNING
        self._start_rank(job.name, Token(int(job.environment["SLIPWAY_INCARNATION"])))

    def poll(self, name: str) -> Status:
        return Status(self.jobs.get(name, JobState.MISSING))

    def cancel(self, name: str, grace_seconds: float) -> None:
        self.stopping.add(name)
        if name in self.ranks and self.chance.random() < 0.3:
            self.schedule.kill(self.ranks[name])

    def take_back(self, name: str, nodes: Collection[str]) -> tuple[str, ...]:
        raise AssertionError("the job has its only node")

    def rest(self) -> None: ...

    def release(self, name: str) -> bool:
        raise AssertionError("no job is released")

    def logs(self, name: str, tail_bytes: int = 0) -> dict[str, str]:
        return {}

    # The trainer.

    def _start_rank(self, job: str, token: Token) -> None:
        rank = functools.partial(self._train, job, token)
        self.ranks[job] = self.schedule.spawn(f"{job} {token}", rank, functools.partial(self._ended, job, token))

    def _train(self, job: str, token: Token) -> None:
        try:
            if token.generation and not self._claim(token):
                return
            fence.check(self.store.folder, token)
            committed = fence.commits(self.store.folder)
            for step in range(committed[-1].step + 1 if committed else 1, STEPS + 1):
                if job in self.stopping:
                    return
                commit = Commit(step, token, f"{step}.{token}", "0" * 64)
                fence.commit(self.store.folder, commit)
                self.acknowledged.append(commit)
            fence.end(self.store.folder, Exit(token.incarnation, "succeeded", "", STEPS, "trainer", 0.0), token)
            self.succeeded.append(token)
        except Superseded:
            self.superseded.append(token)

    def _ended(self, job: str, token: Token) -> None:
        """A rank is gone: torchrun starts it again, with a new generation, or the job has ended."""
        if token in self.succeeded:
            self.jobs[job] = JobState.SUCCEEDED
        elif job not in self.stopping and token.generation < 2 and self.chance.random() < 0.5:
            self._start_rank(job, Token(token.incarnation, token.generation + 1))
        else:
            self.jobs[job] = JobState.FAILED

    # The control plane.

    def start_control(self, turns: int, name: str) -> None:
        self.schedule.spawn(name, functools.partial(self._steer, turns))

    def _steer(self, turns: int) -> None:
        for _ in range(turns):
            match self.chance.choice(("advance", "advance", "advance", "supersede", "run", "stop")):
                case "advance":
                    self.control.advance(self.store, "control")
                case "supersede":
                    self.control.supersede(self.store, self.store.read(), FAULT, "control")
                case want:
                    self.store.want(want, "control", "a person")

    def _claim(self, token: Token) -> bool:
        won = fence.claim(self.store.folder, token, nodes=("node-0",), cause="restart", by="trainer")
        if won:
            assert token not in self.claimed
            self.claimed.append(token)
        return won

    def finish(self) -> None:
        """After all crashes: one control plane, nothing else that fails; the training comes to its end."""
        self.stopping.clear()
        self.store.want("run", "control", "the end")
        for _ in range(100):
            self.later += LONGEST_REST
            if self.control.advance(self.store, "control") is Action.DONE:
                return
            self.schedule.run()
        raise AssertionError("the training waits for ever")


def check(world: World) -> None:
    folder = world.store.folder
    counts = {commit.name for commit in fence.commits(folder)}
    assert {commit.name for commit in world.acknowledged} <= counts
    newest_claim = fence.newest_claim(folder)
    assert newest_claim is not None
    assert [token.incarnation for token in world.succeeded] in ([], [newest_claim.token.incarnation])
    ended = fence.read_exit(folder, newest_claim.token.incarnation)
    assert ended is not None and ended.outcome == "succeeded"
    wants = [codec.read(path, Desired, "slipway.training/1").want for path in sorted(folder.glob("desired/*.json"))]
    assert all(one != next for one, next in itertools.pairwise(wants))


def interleave(seed: int, kills: float) -> World:
    root = Path(tempfile.mkdtemp(prefix="interleaving-", dir="/dev/shm"))
    try:
        world = World(seed, root, kills)
        world.store.want("run", "control", "the beginning")
        for number in range(3):
            world.start_control(8, f"control {number}")
        world.schedule.run()
        world.schedule.kills = 0.0
        world.finish()
        check(world)
        return world
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("kills", [0.0, 0.02])
def test_nothing_that_was_acknowledged_is_lost_and_nothing_is_run_twice(kills: float) -> None:
    worlds = [interleave(seed, kills) for seed in range(100)]
    assert sum(len(world.acknowledged) for world in worlds) > 200
    assert sum(len(world.superseded) for world in worlds) > 20


@pytest.mark.nightly
@pytest.mark.parametrize("kills", [0.0, 0.005, 0.02, 0.1])
def test_nothing_is_lost_or_run_twice_in_a_thousand_interleavings(kills: float) -> None:
    for seed in range(1_000, 1_500):
        interleave(seed, kills)
