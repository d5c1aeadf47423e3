"""The end of a supervised job: what a new start would not change, signals, and the death of what holds it together."""

import os
from pathlib import Path
from signal import SIGKILL, SIGSTOP, SIGTERM, Signals

import pytest

from slipway.trainer.record import causes, incidents
from slipway.trainer.record.fence import Token
from tests.conftest import until
from tests.trainer.conftest import Training
from tests.trainer.elastic.conftest import StartNodes
from tests.trainer.elastic.nodes import Fault, generation

pytestmark = pytest.mark.nightly
TWO = ("a", "b")
FROZEN = Fault(rank=0, step=8, number=SIGSTOP)


def test_the_death_of_the_supervisor_ends_its_ranks_and_its_node(training: Training, start_nodes: StartNodes) -> None:
    nodes = start_nodes(("a",), FROZEN)
    training.until_frozen()
    [rank] = nodes.ranks("a")
    os.kill(nodes.supervisor("a"), SIGKILL)
    assert nodes.ended() == [128 + SIGKILL]
    until(lambda: not Path(f"/proc/{rank}").exists(), "the rank to be gone")
    assert generation(training) == 0


@pytest.mark.parametrize("number", [SIGKILL, SIGSTOP], ids=["dies", "stands still"])
def test_a_store_that_does_not_answer_ends_the_job_and_is_named(
    training: Training, start_nodes: StartNodes, number: Signals
) -> None:
    nodes = start_nodes(TWO, FROZEN)
    training.until_frozen()
    nodes.store.send_signal(number)
    assert nodes.ended() == [1, 1]
    assert "the job's rendezvous store does not answer" in nodes.log_of("a")
    incident = incidents.read(training.store, str(Token(1)))
    assert (incident.kind, incident.action) == (causes.NETWORK, "ended the job")
    assert "the job's rendezvous store does not answer" in incident.reason
    assert generation(training) == 0


def test_a_configuration_that_cannot_be_trained_ends_the_job_at_once(
    training: Training, start_nodes: StartNodes
) -> None:
    training.configure(layout={"tensor": 3})
    nodes = start_nodes(TWO)
    assert set(nodes.ended()) <= {1, 2}
    assert "field layout" in nodes.log_of("a")
    assert generation(training) == 0


def test_a_file_that_is_no_configuration_is_named(training: Training, start_nodes: StartNodes) -> None:
    training.config.write_text("{}")
    nodes = start_nodes(("a",))
    assert nodes.ended() == [2]
    assert nodes.log_of("a").startswith("trainer: ") and "config.json" in nodes.log_of("a")


def test_a_node_that_is_asked_to_stop_stops_all_with_a_checkpoint(training: Training, start_nodes: StartNodes) -> None:
    nodes = start_nodes(TWO, FROZEN)
    training.until_frozen()
    nodes.processes["b"].send_signal(SIGTERM)
    until(nodes.is_stopping, "the others to hear of it")
    training.thaw()
    assert nodes.ended() == [0, 128 + SIGTERM]
    assert training.commits()[-1].step >= 9
    assert generation(training) == 0
    assert not (training.store / "incidents").exists()


def test_a_rank_that_dies_while_the_job_stops_is_not_started_anew(training: Training, start_nodes: StartNodes) -> None:
    nodes = start_nodes(TWO, FROZEN)
    training.until_frozen()
    nodes.processes["b"].send_signal(SIGTERM)
    [rank] = nodes.ranks("a")
    until(nodes.is_stopping, "the others to hear of it")
    os.kill(rank, SIGKILL)
    assert nodes.ended() == [128 + SIGKILL, 1]
    assert generation(training) == 0
