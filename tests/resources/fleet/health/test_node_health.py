"""The door to the standings of nodes: one record for each transition, whoever comes, and work that goes elsewhere."""

import threading
from pathlib import Path

import pytest

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.fleet.health.guarded import GuardedFleet
from slipway.resources.fleet.health.node_health import NodeHealth
from slipway.resources.fleet.health.preflights import PreflightRecord
from slipway.resources.fleet.health.register import FORMAT, NodeRegister
from slipway.resources.fleet.health.standing import Evidence, HealthRules, NodeRecord, Standing, Weight
from slipway.resources.fleet.health.suspicion import by_fleet, by_incident
from slipway.resources.fleet.protocol import Node
from slipway.trainer.base import codec
from slipway.trainer.record import causes
from slipway.trainer.record.incidents import IncidentRecord

pytestmark = pytest.mark.pure

NAMES = ("node-0", "node-1", "node-2")
BY = "node health"


class Ground:
    """A fleet of three nodes, and the door to their standings."""

    def __init__(self, root: Path, rules: HealthRules) -> None:
        self.now = 1_000_000.0
        self.fleet = EmbeddedFleet(root / "nodes", NAMES, 60)
        self.register = NodeRegister(root / "durable")
        self.door = NodeHealth(self.register, rules, self.fleet.nodes, clock=lambda: self.now)

    def severe(self, node: str, id: str = "1") -> NodeRecord | None:
        return self.door.suspect(node, [Evidence(id, "Xid 79", "Xid 79", Weight.SEVERE, self.now)], BY)

    def ready(self) -> list[str]:
        return [node.name for node in GuardedFleet(self.fleet, self.register, self.door.rules).nodes() if node.ready]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path, HealthRules(apply=True))


def incident(kind: str, reason: str, *nodes: str) -> IncidentRecord:
    return IncidentRecord("000001.0000", kind, reason, "restarted", "supervisor", 1.0, 40, nodes=nodes)


def test_a_node_out_of_service_gets_no_new_work_and_keeps_what_it_has(ground: Ground):
    ground.severe("node-1")
    [closed] = [
        node for node in GuardedFleet(ground.fleet, ground.register, ground.door.rules).nodes() if not node.ready
    ]
    assert (closed.name, closed.cordoned, closed.lost, closed.reason) == ("node-1", True, False, "quarantined: Xid 79")
    assert ground.ready() == ["node-0", "node-2"]


def test_the_circuit_breaker_stops_the_third_of_three_nodes(ground: Ground):
    for node in NAMES:
        ground.severe(node)
    assert [ground.register.of(node).standing for node in NAMES] == [
        Standing.QUARANTINED,
        Standing.QUARANTINED,
        Standing.SUSPECT,
    ]
    assert ground.ready() == ["node-2"]


def test_a_person_goes_past_the_circuit_breaker_and_past_an_exemption(ground: Ground):
    ground.door.exempt("node-2", "ana", "it is used for tests")
    for node in NAMES:
        ground.severe(node)
    assert ground.door.set_by_hand("node-2", Standing.QUARANTINED, "ana", "smoke").out_of_service
    assert ground.ready() == []
    ground.door.set_by_hand("node-2", Standing.RELEASED, "ana", "it was the kitchen")
    assert ground.ready() == ["node-2"]


def test_every_transition_has_who_when_and_why_on_record(ground: Ground):
    ground.severe("node-1")
    ground.now += 700
    ground.door.begin_diagnosis("node-1", "run 7")
    ground.door.end_diagnosis("node-1", "disk: Input/output error", "run 7", "7")
    history = ground.register.history("node-1")
    assert [(record.number, record.standing, record.who, record.at - history[0].at) for record in history] == [
        (1, Standing.QUARANTINED, BY, 0),
        (2, Standing.DIAGNOSING, "run 7", 700),
        (3, Standing.REPAIR, "run 7", 700),
    ]
    assert history[-1].why == "disk: Input/output error" and history[-1].evidence[0].id == "1"


def test_of_many_who_find_the_same_at_once_one_records_it(ground: Ground):
    barrier = threading.Barrier(8)

    def find() -> None:
        barrier.wait()
        ground.severe("node-1")

    threads = [threading.Thread(target=find) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ground.register.history("node-1")) == 1


def test_a_fault_of_a_preflight_makes_a_node_in_service_a_suspect(ground: Ground):
    record = ground.door.end_diagnosis("node-0", "disk: full", "ana", "run")
    assert record is not None and (record.standing, record.why) == (Standing.SUSPECT, "preflight: disk: full")
    assert ground.door.end_diagnosis("node-1", "", "ana", "run") is None


def test_a_record_that_cannot_be_read_is_no_healthy_node(ground: Ground):
    ground.severe("node-1")
    for suffix in ("json", "copy"):
        (ground.register.durable / "nodes" / "node-1" / f"000001.{suffix}").write_bytes(b"rust")
    with pytest.raises(Unavailable, match="node node-1: its record 1 cannot be read"):
        ground.ready()


def test_a_node_that_is_not_there_is_refused_by_name(ground: Ground):
    with pytest.raises(ValueError, match="node-9: found no such node in the fleet, expected one of node-0"):
        ground.door.set_by_hand("node-9", Standing.QUARANTINED, "ana", "smoke")


def test_a_record_says_the_same_when_it_is_read_again(ground: Ground):
    record = ground.severe("node-1")
    assert record is not None
    assert codec.read(ground.register.durable / "nodes" / "node-1" / "000001.json", NodeRecord, FORMAT) == record


@pytest.mark.parametrize(
    ("kind", "reason", "weight"),
    [
        (causes.HUNG, "no progress for 60 s", Weight.MACHINE),
        (causes.MACHINE, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus", Weight.SEVERE),
        (causes.PROGRAM, "NVRM: Xid (PCI:0000:3b:00): 31, MMU fault", Weight.PROGRAM),
    ],
)
def test_an_incident_speaks_against_the_node_that_it_names(kind: str, reason: str, weight: Weight):
    [(node, evidence)] = by_incident(incident(kind, reason, "node-3"), "tiny", 32)
    assert (node, evidence.weight, evidence.id) == ("node-3", weight, "tiny/000001.0000")


@pytest.mark.parametrize(
    ("kind", "reason", "nodes"),
    [
        (causes.DISRUPTED, "node node-3 is lost", ("node-3",)),
        (causes.CONFIGURATION, "batch.micro", ("node-3",)),
        (causes.HUNG, "no progress for 60 s", ("node-1", "node-2", "node-3", "node-4")),
        (causes.PROGRAM, "NVRM: Xid (PCI:0000:3b:00): 43, stopped", ("node-3",)),
    ],
)
def test_what_is_no_fault_of_one_machine_speaks_against_none(kind: str, reason: str, nodes: tuple[str, ...]):
    assert not list(by_incident(incident(kind, reason, *nodes), "tiny", 32))


def test_what_the_fleet_finds_is_one_piece_of_evidence_however_often_it_is_read():
    node = Node("node-3", ready=False, reason="Xid 79", since=5.0, fault="Xid 79 (RESTART_BM): fallen off")
    first, again = by_fleet(node, 10.0), by_fleet(node, 20.0)
    assert first == again and first is not None and first.weight is Weight.SEVERE and first.fault == "Xid 79"
    assert by_fleet(Node("node-3", ready=False, reason="the power is gone"), 10.0) is None


def joining(tmp_path: Path) -> Ground:
    """Nodes that join are measured before they work."""
    return Ground(tmp_path, HealthRules(preflight_joining=True))


def test_a_new_node_gets_no_work_before_its_preflight_finds_no_fault(tmp_path: Path):
    ground = joining(tmp_path)
    assert ground.ready() == [], "also before any sensor has seen them"
    for node in ground.fleet.nodes():
        assert ground.door.join(node, BY) is not None and ground.door.join(node, BY) is None
    assert ground.ready() == [] and ground.door.is_diagnosis_due(ground.register.of("node-0"))
    ground.door.end_diagnosis("node-0", "", BY, "run")
    ground.door.end_diagnosis("node-1", "disk read: 0.1 GB/s of 7", BY, "run")
    ground.door.fail_diagnosis("node-2", "no image", BY)
    assert ground.ready() == ["node-0"]
    standings = [(record.standing, record.why) for record in map(ground.register.of, NAMES)]
    assert standings == [
        (Standing.RELEASED, "the preflight found no fault"),
        (Standing.REPAIR, "disk read: 0.1 GB/s of 7"),
        (Standing.JOINING, "the preflight could not be completed: no image"),
    ]


def test_nodes_that_join_leave_the_circuit_breaker_alone(tmp_path: Path):
    ground = Ground(tmp_path, HealthRules(apply=True, preflight_joining=True, least=1))
    for node in ground.fleet.nodes():
        ground.door.join(node, BY)
    ground.door.end_diagnosis("node-0", "", BY, "run")
    ground.severe("node-0")
    assert ground.register.of("node-0").standing is Standing.QUARANTINED


def test_a_node_that_was_lost_is_measured_again_before_it_works(tmp_path: Path):
    ground = joining(tmp_path)
    [first, *_] = ground.fleet.nodes()
    ground.door.join(first, BY)
    ground.door.end_diagnosis("node-0", "", BY, "run")
    assert ground.ready() == ["node-0"]
    ground.door.join(Node("node-0", ready=False, reason="NodeStatusUnknown"), BY)
    after = ground.register.of("node-0")
    assert (after.standing, "NodeStatusUnknown" in after.why) == (Standing.JOINING, True) and ground.ready() == []


def test_an_exempt_node_works_without_a_preflight(tmp_path: Path):
    ground = joining(tmp_path)
    ground.door.exempt("node-0", "ana", "it is used for tests")
    for node in ground.fleet.nodes():
        ground.door.join(node, BY)
    assert ground.ready() == ["node-0"]


def test_a_suspect_is_measured_once_after_each_incident(tmp_path: Path):
    ground = Ground(tmp_path, HealthRules(preflight_incidents=True, incidents=9))

    def hang(id: str) -> NodeRecord:
        ground.door.suspect("node-0", [Evidence(id, "hung", "it hung", Weight.MACHINE, ground.now)], BY)
        return ground.register.of("node-0")

    def measure(run: str, faults: str) -> None:
        answers = tuple(evidence.id for evidence in ground.register.of("node-0").evidence)
        ground.door.preflights.add(PreflightRecord("node-0", run, "weak", faults, ground.now, {}, answers))
        ground.door.end_diagnosis("node-0", faults, BY, run)

    assert ground.door.is_preflight_due(hang("1"))
    measure("first", "")
    assert not ground.door.is_preflight_due(hang("1"))
    assert ground.door.is_preflight_due(hang("2"))
    measure("second", "disk read: 0.1 GB/s of 7")
    assert not ground.door.is_preflight_due(ground.register.of("node-0")), "what a preflight found is no incident"
    assert [(preflight.number, preflight.run) for preflight in ground.door.preflights.of("node-0")] == [
        (1, "first"),
        (2, "second"),
    ]
