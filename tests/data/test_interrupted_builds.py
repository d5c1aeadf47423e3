"""A build that is killed at whatever moment leaves no process, and its next attempt an undisturbed one's bytes."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import until
from tests.data.builds import content
from tests.data.corpora import make_corpus, recipe_for
from tests.data.forked import MARK, WITH_WORKERS, WITHOUT, Forker, forker
from tests.data.test_incremental import mutate
from trainer import processes

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def builds():
    with forker() as started:
        yield started


class State(NamedTuple):
    """What a build leaves: the files of snapshots, and how many entries every folder has."""

    content: dict[str, bytes]
    entries: Counter[str]


def state(durable: Path) -> State:
    return State(content(durable), Counter(str(path.parent.relative_to(durable)) for path in durable.rglob("*")))


class Trial:
    """A corpus that is built, changed, and built again."""

    def __init__(self, folder: Path, builds: Forker) -> None:
        self.durable, self._corpus, self._builds = folder / "durable", make_corpus(folder / "corpus"), builds

    def build(self, workers: bool = False) -> float:
        """Build undisturbed; gives the seconds that took."""
        begin = time.monotonic()
        self._start(workers)
        assert self._builds.status() == 0
        return time.monotonic() - begin

    def build_and_kill(self, seconds: float, workers: bool) -> bool:
        """Kill a build after so many seconds; says whether it was still at work. All that it started ends with it."""
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
    """What a first build and an incremental one give, and the seconds that one takes, by whether it has workers."""

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
    """Kill a first build and the incremental one after it, each tried again; gives how many were still at work."""
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


@pytest.mark.parametrize(("workers", "seed"), [(True, 0), (False, 1), (False, 2), (False, 3)])
def test_the_attempt_after_a_kill_gives_an_undisturbed_builds_bytes_and_no_other_file(
    tmp_path, builds, undisturbed, workers, seed
):
    kill_twice(Trial(tmp_path, builds), workers, seed, undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("workers", [True, False])
def test_no_moment_is_a_bad_one_to_be_killed(tmp_path, builds, undisturbed, workers):
    """Twenty-five kills of each kind that met a build at work: some come too late, as builds vary in speed."""
    seeds = iter(range(1000, 1100))
    caught = 0
    while caught < 25:
        seed = next(seeds)
        folder = tmp_path / str(seed)
        folder.mkdir()
        caught += kill_twice(Trial(folder, builds), workers, seed, undisturbed)
