"""Partitions: a node whose network loses everything, in a network namespace of its own, as behind a broken switch."""

import os
import time
from signal import SIGCONT, SIGSTOP

import pytest

from slipway.trainer.record import causes, incidents
from slipway.trainer.record.fence import Token
from tests.trainer.conftest import STEPS, Training
from tests.trainer.elastic.conftest import StartNodes
from tests.trainer.elastic.namespaces import networks
from tests.trainer.elastic.nodes import Fault, generation

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
TWO = ("a", "b")
SHORT_SECONDS = 5.0
"""Far below the silence after which a node counts as lost."""


def test_a_node_that_is_cut_off_ends_itself_and_the_other_goes_on_without_it(
    training: Training, start_nodes: StartNodes
) -> None:
    with networks(TWO) as cables:
        nodes = start_nodes(TWO, Fault(rank=0, step=8, number=SIGSTOP), least=1, networks=cables)
        training.until_frozen()
        cables.cut("b")
        assert nodes.ended("a") == [0], nodes.log_of("a")
        assert nodes.ended("b") == [1], nodes.log_of("b")
        assert "rendezvous store does not answer" in nodes.log_of("b")
    assert generation(training) == 1
    assert [event["world"] for event in training.events("started")] == [2, 1]
    assert [step for step, _ in training.losses()] == list(range(1, STEPS + 1))
    [incident] = [incidents.read(training.store, name) for name in incidents.names(training.store)]
    assert (incident.token, incident.kind, incident.nodes) == (str(Token(1)), causes.DISRUPTED, ("b",))
    assert "node b is lost: no sign of life for" in incident.reason


def test_a_network_that_is_back_soon_interrupts_nothing(
    training: Training, finished_by_two: Training, start_nodes: StartNodes
) -> None:
    with networks(TWO) as cables:
        nodes = start_nodes(TWO, Fault(rank=0, step=8, number=SIGSTOP), least=1, networks=cables)
        training.until_frozen()
        [stopped] = nodes.ranks("a")
        cables.cut("b")
        os.kill(stopped, SIGCONT)
        time.sleep(SHORT_SECONDS)  # the fault itself: for so long nothing arrives
        cables.mend("b")
        assert nodes.ended() == [0, 0], nodes.log_of("a")
    assert generation(training) == 0 and incidents.names(training.store) == []
    assert training.losses() == finished_by_two.losses()
