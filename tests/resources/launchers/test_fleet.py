"""The embedded fleet: which nodes take work."""

from pathlib import Path

import pytest

from slipway.resources.errors import Unavailable
from slipway.resources.fleet import embedded
from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.fleet.protocol import Node


@pytest.fixture
def fleet(tmp_path: Path) -> EmbeddedFleet:
    return EmbeddedFleet(tmp_path, ("b", "a"), reboot_seconds=60)


def test_a_new_fleet_is_ready(fleet: EmbeddedFleet):
    assert fleet.nodes() == [Node("a", ready=True), Node("b", ready=True)]


def test_a_lost_node_is_away_until_it_has_rebooted(fleet: EmbeddedFleet):
    fleet.mark_lost("a", "power cut", now=1000)
    assert fleet.nodes(now=1059)[0] == Node("a", ready=False, reason="power cut", since=1000)
    assert fleet.nodes(now=1060)[0].ready


def test_a_restored_node_is_ready_at_once(fleet: EmbeddedFleet):
    fleet.mark_lost("a", "power cut", now=1000)
    fleet.restore("a")
    fleet.restore("b")
    assert all(node.ready for node in fleet.nodes(now=1000))


def test_a_mark_that_cannot_be_read_makes_the_fleet_unavailable(fleet: EmbeddedFleet):
    (fleet.folder / "a" / "lost.json").mkdir(parents=True)
    with pytest.raises(Unavailable, match="node a"):
        fleet.nodes()


def test_killing_an_idle_node_takes_it_away(fleet: EmbeddedFleet):
    assert embedded.kill(fleet.folder, "a") == []
    assert not fleet.nodes()[0].ready
