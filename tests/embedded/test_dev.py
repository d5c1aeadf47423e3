"""`dev`: the instance stays up until Ctrl-C, and has its home for itself."""

import subprocess
from collections.abc import Iterator

import pytest
from dagster_graphql import DagsterGraphQLClient

from tests.embedded.slipway import Slipway, free_port, interrupt, printed_until

pytestmark = pytest.mark.slow


@pytest.fixture
def running(slipway: Slipway) -> Iterator[subprocess.Popen[str]]:
    """An instance that answers."""
    slipway.environ["SLIPWAY_PORT"] = str(free_port())
    process = slipway.start("dev")
    printed_until(process, f"Slipway is at http://127.0.0.1:{slipway.environ['SLIPWAY_PORT']}; Ctrl-C closes it")
    yield process
    slipway.end_all()


def test_it_says_that_it_is_there_when_it_knows_the_definitions(slipway: Slipway, running: subprocess.Popen[str]):
    client = DagsterGraphQLClient("127.0.0.1", port_number=int(slipway.environ["SLIPWAY_PORT"]))
    assert client.submit_job_execution("small_decoder_sweep")
    assert interrupt(running)[0] == 0


def test_its_home_is_its_own_until_it_is_closed(slipway: Slipway, running: subprocess.Popen[str]):
    del slipway.environ["SLIPWAY_PORT"]
    second = slipway.run("demo")
    assert (second.returncode, second.stdout) == (1, "")
    assert "found another instance using it" in second.stderr
    code, output, errors = interrupt(running)
    assert (code, output, errors) == (0, "", "")
    assert slipway.pids() == []
