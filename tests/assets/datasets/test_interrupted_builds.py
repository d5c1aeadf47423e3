"""A build that is killed at any moment leaves no process, and the next attempt gives the usual bytes."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from slipway.trainer.base import processes
from tests.assets.datasets.builds import content
from tests.assets.datasets.corpora import make_corpus, recipe_for
from tests.assets.datasets.forked import MARK, WITH_WORKERS, WITHOUT, Forker, forker
from tests.assets.datasets.test_incremental import mutate
from tests.conftest import until

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def builds():
    with forker() as started:
        yield started


class State(NamedTuple):
    """The result of a build: the files of snapshots, and the number of entries in every folder."""

    content: dict[str, bytes]
    entries: Counter[str]


def state(durable: Path) -> State:
    return State(content(durable), Counter(str(path.parent.relative_to(durable)) for path in durable.rglob("*")))


class Trial:
    """A corpus that is built, changed, and built again."""

    def __init__(self, folder: Path, builds: Forker) -> None:
        self.durable, self._corpus, self._builds = folder / "durable", make_corpus(folder / "corpus"), builds

    def build(self, workers: bool = False) -> float:
        """Build undisturbed; returns the seconds that it took."""
        begin = time.monotonic()
        self._start(workers)
        assert self._builds.status() == 0
        return time.monotonic() - begin

    def build_and_kill(self, seconds: float, workers: bool) -> bool:
        """Kill a build after so many seconds; returns whether it was still running. Its processes end with it."""
        pid = self._start(workers)
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = self._builds.status()
        assert status in (0, -signal.SIGKILL)
        until(lambda: not processes.carrying({MARK: str(pid)}), "the workers of a killed build to end")
        assert not list(SHARED_MEMORY.glob(f"*loky-{pid}-*"))
        return status != 0

    def change(self) -> None:
        mutate(self._corpus, 1)

    def _start(self, workers: bool) -> int:
        recipe = recipe_for(self._corpus, shard_tokens=400)
        return self._builds.start(recipe, self.durable, WITH_WORKERS if workers else WITHOUT)


class Undisturbed(NamedTuple):
    """The results of a first and an incremental build, and the seconds of a build, with and without workers."""

    first: State
    second: State
    seconds: dict[bool, float]


@pytest.fixture(scope="module")
def undisturbed(builds, tmp_path_factory) -> Undisturbed:
    trial = Trial(tmp_path_factory.mktemp("undisturbed"), builds)
    with_workers = trial.build(workers=True)
    first = state(trial.durable)
    trial.change()
    without = trial.build()
    return Undisturbed(first, state(trial.durable), {True: with_workers, False: without})


def kill_twice(trial: Trial, workers: bool, seed: int, undisturbed: Undisturbed) -> int:
    """Kill a first build and the incremental one after it, each tried again; returns how many were still running."""
    chosen, seconds = random.Random(seed), undisturbed.seconds[workers]
    caught = 0
    caught += trial.build_and_kill(chosen.random() * seconds, workers)
    trial.build()
    assert state(trial.durable) == undisturbed.first
    trial.change()
    caught += trial.build_and_kill(chosen.random() * seconds, workers)
    trial.build()
    assert state(trial.durable) == undisturbed.second
    return caught


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "seed"), [(True, 0), (False, 1), (False, 2), (False, 3)])
def test_the_attempt_after_a_kill_gives_the_files_of_an_undisturbed_build(tmp_path, builds, undisturbed, workers, seed):
    kill_twice(Trial(tmp_path, builds), workers, seed, undisturbed)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("workers", [True, False])
def test_a_build_may_be_killed_at_any_moment(tmp_path, builds, undisturbed, workers):
    """Twenty-five kills of each kind during a build; some kills come too late, because builds vary in speed."""
    seeds = iter(range(1000, 1100))
    caught = 0
    while caught < 25:
        seed = next(seeds)
        folder = tmp_path / str(seed)
        folder.mkdir()
        caught += kill_twice(Trial(folder, builds), workers, seed, undisturbed)
