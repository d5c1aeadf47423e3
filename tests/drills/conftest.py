"""One instance for all drills, and the certainty that no drill leaves a process behind."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from slipway.trainer.base.processes import carrying
from tests.drills import small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import command_of, kill

MARK, OWN_MARK = "SLIPWAY_TEST", "SLIPWAY_DRILL"
TRIAL_STEPS = 240
TRACKER = "resource_tracker"
"""Python's own helper of a process that starts others: it ends with that process, here pytest's."""
END_SECONDS = 90.0


@pytest.fixture(scope="package")
def mark() -> Iterator[dict[str, str]]:
    """What all that the drills start finds in its environment; in the end nothing that carries it is left.

    It is in this process's own environment only while a drill runs: what other tests start is theirs.
    """
    mark = {MARK: uuid.uuid4().hex}
    yield mark
    _expect_nothing_left(mark, list)


@pytest.fixture(scope="package")
def shared_instance(mark: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """One instance for all drills of a worker. It ends with them: its ticks would slow the tests after them."""
    folder = tmp_path_factory.mktemp("drills")
    drill_instance = Instance(folder, small_recipes.write(folder, TRIAL_STEPS), mark)
    try:
        drill_instance.start()
        drill_instance.make_snapshot()
        yield drill_instance
    finally:
        drill_instance.dispose()


@pytest.fixture
def instance(shared_instance: Instance, mark: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """The running instance. After the drill only its control plane may be left."""
    monkeypatch.setenv(MARK, mark[MARK])
    shared_instance.start()
    for node in shared_instance.fleet.names:
        shared_instance.fleet.restore(node)
    yield shared_instance
    _expect_nothing_left(mark, shared_instance.pids)


@pytest.fixture
def own_mark(mark: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """For a drill that starts processes beside the instance: what marks its own; after it, none is left."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(OWN_MARK, value)
    yield {OWN_MARK: value}
    _expect_nothing_left({OWN_MARK: value}, list)


def _expect_nothing_left(mark: dict[str, str], spared: Callable[[], list[int]]) -> None:
    """Fails when processes are left besides the spared ones, and ends them all the same."""

    def survivors() -> set[int]:
        return {pid for pid in set(carrying(mark)) - set(spared()) if TRACKER not in command_of(pid)}

    deadline = time.monotonic() + END_SECONDS
    while survivors() and time.monotonic() < deadline:
        time.sleep(0.1)
    # A process without a command line ended between the two looks.
    commands = {pid: command for pid in survivors() if (command := command_of(pid))}
    kill(commands)
    assert not commands, "processes left behind"
