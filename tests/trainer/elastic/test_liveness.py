"""Liveness: a node is lost when its supervisor shows no sign of life, and not because the one who looks had to wait."""

import os
import subprocess
import sys
from collections.abc import Iterator
from signal import SIGKILL, SIGSTOP

import pytest

from slipway.trainer.base import processes
from slipway.trainer.diagnosis import stacks
from slipway.trainer.elastic.generations import ALIVE
from slipway.trainer.elastic.job_store import JobStore
from slipway.trainer.elastic.liveness import BEAT_SECONDS, LOST_SECONDS, NodeLiveness
from tests.conftest import until
from tests.resources.trainings.clock import Clock

BUSY_SUPERVISOR = """
import sys, time
import torch
from slipway.trainer.elastic import liveness, rendezvous_store
pid, port = rendezvous_store.start_local()
print(port, liveness.start(rendezvous_store.LOOPBACK, port, "a"), flush=True)
time.sleep(600)  # it writes to a disk that does not answer
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> JobStore:
    return JobStore.alone()


@pytest.fixture
def other(store: JobStore, clock: Clock) -> NodeLiveness:
    liveness = NodeLiveness(store, "b", clock)
    liveness.beat()
    return liveness


@pytest.fixture
def own(store: JobStore, clock: Clock, other: NodeLiveness) -> NodeLiveness:
    return NodeLiveness(store, "a", clock)


def watch(own: NodeLiveness, clock: Clock, seconds: float) -> str:
    """Look at node b each second for so long; what is said of it at the end."""
    for _ in range(int(seconds)):
        own.lost("b")
        clock.now += 1.0
    return own.lost("b")


def test_a_node_that_shows_no_sign_of_life_for_long_is_lost(own: NodeLiveness, clock: Clock) -> None:
    assert watch(own, clock, LOST_SECONDS) == ""
    assert watch(own, clock, 1) == f"node b is lost: no sign of life for {LOST_SECONDS + 1:.0f} s"


def test_a_sign_of_life_in_between_ends_the_silence(own: NodeLiveness, other: NodeLiveness, clock: Clock) -> None:
    watch(own, clock, LOST_SECONDS)
    other.beat()
    assert watch(own, clock, LOST_SECONDS) == "" and own.silence("b") <= LOST_SECONDS


def test_the_time_in_which_the_one_who_looks_was_kept_waiting_does_not_count(own: NodeLiveness, clock: Clock) -> None:
    """Both may have waited for the same tier."""
    own.lost("b")
    clock.now += 60.0
    assert own.lost("b") == "" and own.silence("b") <= 2 * BEAT_SECONDS


@pytest.fixture
def busy() -> Iterator[tuple[subprocess.Popen[str], JobStore, int]]:
    """A supervisor that does something else for long, the store of its job, and the process that shows its life."""
    with subprocess.Popen([sys.executable, "-c", BUSY_SUPERVISOR], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        port, liveness_pid = map(int, supervisor.stdout.readline().split())
        try:
            yield supervisor, JobStore.connected("127.0.0.1", port, 10.0), liveness_pid
        finally:
            supervisor.kill()


@pytest.mark.slow
def test_a_supervisor_that_is_busy_shows_that_it_lives(busy: tuple[subprocess.Popen[str], JobStore, int]) -> None:
    _, store, liveness_pid = busy
    until(lambda: store.count(f"{ALIVE}/a") >= 3, "signs of life", 60)
    assert "slipway.trainer.elastic.liveness" in processes.command_line(liveness_pid)


@pytest.mark.slow
def test_one_that_is_stopped_or_killed_shows_none(busy: tuple[subprocess.Popen[str], JobStore, int]) -> None:
    supervisor, store, liveness_pid = busy
    until(lambda: store.count(f"{ALIVE}/a") >= 1, "a sign of life", 60)
    os.kill(supervisor.pid, SIGSTOP)
    observer = NodeLiveness(store, "b")
    until(lambda: observer.silence("a") > 3 * BEAT_SECONDS, "silence", 60)
    os.kill(supervisor.pid, SIGKILL)
    until(lambda: not stacks.state(liveness_pid), "the end of the process beside it", 60)
