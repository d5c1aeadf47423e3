"""Suspects: which nodes the next start leaves out, and when it cannot."""

from pathlib import Path

import pytest

from slipway.resources.trainings import incidents as training_incidents
from slipway.resources.trainings.faults import TrainingFault
from slipway.trainer.record import causes, incidents
from slipway.trainer.record.incidents import IncidentRecord

pytestmark = pytest.mark.pure

NODES = ("a", "b", "c")


def noted(store: Path, kind: str, *nodes: str, incarnation: int = 1, step: int = 5) -> None:
    token = f"{incarnation:06d}.0000"
    incident = IncidentRecord(token, kind, "a reason", "an action", "a test", 1.0, step, (), nodes, survived=True)
    incidents.note(store, incident)


def on_record(store: Path, **policies: str) -> frozenset[str]:
    return training_incidents.suspects_on_record(store, 1, NODES, policies)


def test_the_node_of_a_fault_of_the_hardware_is_a_suspect(tmp_path: Path) -> None:
    noted(tmp_path, causes.CORRUPTION, "b")
    noted(tmp_path, causes.MACHINE, "c", incarnation=2)
    assert on_record(tmp_path) == {"b"}


def test_a_slow_node_is_a_suspect_only_where_the_recipe_has_it_replaced(tmp_path: Path) -> None:
    noted(tmp_path, causes.STRAGGLER, "b")
    assert on_record(tmp_path) == frozenset()
    assert on_record(tmp_path, straggler="replace") == {"b"}


def test_an_incident_that_names_all_nodes_makes_none_a_suspect(tmp_path: Path) -> None:
    noted(tmp_path, causes.HUNG, *NODES)
    assert on_record(tmp_path) == frozenset()


def test_a_damaged_incident_hides_no_other(tmp_path: Path) -> None:
    noted(tmp_path, causes.CORRUPTION, "b")
    (tmp_path / "incidents" / "000001.0000.json").write_bytes(b"{")
    assert on_record(tmp_path) == {"b"}


def test_the_suspects_of_a_hang_are_those_of_its_fault() -> None:
    fault = TrainingFault("hung", NODES, kind=causes.HUNG, suspects=("c",))
    assert training_incidents.suspects_of_fault(fault, {}) == {"c"}
    assert training_incidents.suspects_of_fault(fault, {"hung": "retry"}) == frozenset()


def test_suspects_are_left_out_only_where_a_training_loses_no_node_by_it() -> None:
    assert training_incidents.avoiding_suspects(NODES, {"b"}, node_count=2) == ["a", "c"]
    assert training_incidents.avoiding_suspects(NODES, {"b"}, node_count=3) == ["a", "b", "c"]
    assert training_incidents.avoiding_suspects(NODES, {"b"}, node_count=100) == ["a", "b", "c"]
