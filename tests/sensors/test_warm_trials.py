"""Warm trials: forked from one process that has imported everything, each with all the processes that a job has."""

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.assets.sweeps.assets import open_sweep
from slipway.resources.fleet import embedded
from slipway.resources.fleet.protocol import NODE_VARIABLE
from slipway.trainer.base.processes import parent_of
from tests.conftest import Marked, until
from tests.sensors.platform import Platform
from tests.sensors.test_sweep_controller import TRIALS, controlling, started, state, subject, trials

SERVER = "slipway.resources.launchers.local.fork_server"
CHAIN = [
    "slipway.trainer",
    "slipway.trainer.supervisor",
    "slipway.trainer.node.process",
    "slipway.resources.launchers.local.keeper",
    SERVER,
]


def module(pid: int) -> str:
    """What Python runs in a process, as others see it."""
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return next((name for flag, name in itertools.pairwise(arguments) if flag == "-m"), "")


def above(pid: int) -> Iterator[int]:
    """A process, its parent, and so on."""
    at: int | None = pid
    while at:
        yield at
        at = parent_of(at)


def frozen(marked: Marked) -> list[int]:
    """The ranks that are stopped now, those that have not ended meanwhile."""
    for pid in marked.running("slipway.trainer"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    return sorted(set(marked.frozen()) & set(marked.running("slipway.trainer")))


@pytest.mark.nightly
def test_a_trial_outlives_the_process_that_forked_it_and_dies_with_its_node(platform: Platform, marked: Marked):
    store = open_sweep(subject(platform), platform.tiers)
    process = controlling(platform, store)
    [rank, *_] = until(lambda: frozen(marked), "a trial")
    chain = list(itertools.islice(above(rank), len(CHAIN)))
    assert [module(pid) for pid in chain] == CHAIN
    server, keeper = chain[-1], chain[-2]
    os.kill(server, signal.SIGKILL)
    until(lambda: parent_of(keeper) != server, "the server to die")
    assert parent_of(rank) == chain[1], "who outlives the server is not disturbed"

    folder = Path(platform.compute.nodes)
    variables = Path(f"/proc/{chain[2]}/environ").read_bytes().decode().split("\0")
    [node] = [name for name in platform.compute.names if f"{NODE_VARIABLE}={name}" in variables]
    assert embedded.kill(folder, node) == [chain[2]]
    until(lambda: rank not in marked.pids(), "the rank to die with its node")
    for pid in marked.frozen():
        os.kill(pid, signal.SIGCONT)
    assert process.wait() == 0
    sweep = state(store)
    assert sweep.closed is not None and sweep.closed.outcome == "complete"
    assert sum(trial_record.attempt for trial_record in sweep.trials.values()) == 0, (
        "the death of a node is no failure of a trial"
    )
    assert sorted(map(len, map(started, trials(store))))[-1] <= 2
    assert len(list(trials(store))) == TRIALS
