"""When the demo gives up: never while a run computes or a job lives, and after its limit where nothing does."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from slipway.deploy.embedded.progress import LOOK_SECONDS, Silence, Work, busy, work_below
from slipway.trainer.base import processes
from tests.conftest import until

LIMIT = 600.0


class WatchedRun:
    """A run of work, and its clock, that a test moves."""

    def __init__(self) -> None:
        self.now, self.used, self.is_alive = 0.0, 0.0, False
        self.silence = Silence(self._work, lambda: self.is_alive, lambda: self.now)

    def _work(self) -> Work:
        return {1: self.used}

    def passes(self, seconds: float, share: float = 0.0) -> float:
        """Let time pass, in which the run uses this share of a processor; how long the silence is then."""
        lasted = 0.0
        for _ in range(int(seconds / LOOK_SECONDS)):
            self.now += LOOK_SECONDS
            self.used += share * LOOK_SECONDS
            lasted = self.silence.seconds()
        return lasted


def test_an_evaluation_that_says_nothing_for_an_hour_is_waited_for():
    assert WatchedRun().passes(3600.0, share=0.1) == 0.0


def test_a_job_that_lives_is_waited_for():
    run = WatchedRun()
    run.is_alive = True
    assert run.passes(3600.0) == 0.0


def test_a_run_that_only_waits_ends_the_patience():
    assert WatchedRun().passes(LIMIT + LOOK_SECONDS, share=0.005) > LIMIT


def test_news_breaks_the_silence_and_it_begins_anew():
    run = WatchedRun()
    run.passes(LIMIT)
    run.silence.broken()
    assert run.passes(LIMIT) == LIMIT


def test_a_run_that_ended_and_one_that_is_new_do_not_hide_each_other():
    assert busy({1: 100.0}, {2: 3.0}, LOOK_SECONDS) and not busy({1: 100.0}, {}, LOOK_SECONDS)


@pytest.fixture
def proxy() -> Iterator[int]:
    """A process with a child, whose child has a child that computes: a proxy, a server, a run, its evaluator."""
    below = "while True: sum(range(1000))"
    for _ in range(3):
        below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {below!r}])"
    process = subprocess.Popen([sys.executable, "-c", below])
    try:
        yield process.pid
    finally:
        processes.kill_tree(process.pid)
        process.wait()


def test_what_is_computed_below_a_run_counts_as_its_work(proxy: int):
    until(lambda: sum(work_below(proxy).values()) > 0.2, "the run's evaluator computes")
    assert len(work_below(proxy)) == 1
