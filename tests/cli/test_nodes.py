"""The verbs of nodes: a person takes a node out of service and back, and sees what became of it."""

import json

from slipway.resources.fleet.health.standing import HealthRules
from tests.cli.conftest import Call


def test_a_node_is_taken_out_of_service_and_back_and_its_history_says_by_whom(slipway: Call):
    assert slipway("nodes", "quarantine", "node-1", "--why", "a new cable").out == (
        "node node-1 is quarantined: a new cable\n"
    )
    listed = {node["name"]: node for node in json.loads(slipway("nodes", "list", "--json").out)}
    assert (listed["node-1"]["ready"], listed["node-1"]["standing"]) == (False, "quarantined")
    assert (listed["node-0"]["ready"], listed["node-0"]["standing"]) == (True, "healthy")
    assert slipway("nodes", "release", "node-1", "--why", "it fits").code == 0
    node = json.loads(slipway("nodes", "show", "node-1", "--json").out)
    assert [
        (transition["standing"], transition["why"], transition["by_hand"]) for transition in node["transitions"]
    ] == [
        ("quarantined", "a new cable", True),
        ("released", "it fits", True),
    ]
    assert all(transition["who"].endswith("by hand") for transition in node["transitions"])


def test_a_node_that_nothing_was_found_against_is_shown_as_healthy(slipway: Call):
    assert "nothing was ever found against it" in slipway("nodes", "show", "node-0").out


def test_an_exemption_is_shown_until_it_is_taken_back(slipway: Call):
    slipway("nodes", "exempt", "node-0", "--why", "it is used for tests")
    assert "no process takes node-0 out of service: it is used for tests" in slipway("nodes", "show", "node-0").out
    slipway("nodes", "exempt", "node-0", "--why", "no more", "--end")
    assert "no process" not in slipway("nodes", "show", "node-0").out


def test_a_node_that_is_not_there_is_refused(slipway: Call):
    result = slipway("nodes", "quarantine", "node-9", "--why", "smoke")
    assert result.code and "node-9" in result.err


def test_on_a_cluster_nothing_is_taken_out_of_service_unless_the_settings_say_so():
    assert not HealthRules().apply
