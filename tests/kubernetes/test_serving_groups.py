"""A worker of a group of pods that is asked to end: the program of its specification, as a process beside a leader."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from slipway.resources.serving import objects
from tests.conftest import until


@pytest.fixture
def leader() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60.0)
        yield listening


def followed(leader: socket.socket, seconds: float) -> subprocess.Popen[bytes]:
    port = str(leader.getsockname()[1])
    [python, *arguments] = objects.after_the_leader()["preStop"]["exec"]["command"][:3]
    assert python == "python3"
    command = [sys.executable, *arguments, port, str(seconds)]
    return subprocess.Popen(command, env={"LWS_LEADER_ADDRESS": "127.0.0.1"})


def test_it_stays_for_as_long_as_its_leader_listens(leader: socket.socket):
    with followed(leader, 600.0) as worker:
        for _ in range(2):
            leader.accept()[0].close()
        assert worker.poll() is None
        leader.close()
        until(lambda: worker.poll() is not None, "the worker to follow its leader", 60.0)
    assert worker.returncode == 0


def test_it_waits_no_longer_than_the_leader_may_take(leader: socket.socket):
    with followed(leader, 0.5) as worker:
        until(lambda: worker.poll() is not None, "the end of its time", 60.0)
    assert worker.returncode == 0
