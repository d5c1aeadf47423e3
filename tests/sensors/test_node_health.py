"""Node health: incidents put a node out of service, a real preflight brings it back or sends it to repair."""

import time
from pathlib import Path

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.assets.preflight import PreflightConfig, preflight
from slipway.definitions import build
from slipway.resources.compute.embedded import EmbeddedCompute
from slipway.resources.event_log import observations
from slipway.resources.fleet.health.standing import Standing
from slipway.resources.trainings.store import TrainingStore
from slipway.sensors.support.runs import PARTITION_TAG
from slipway.trainer.diagnosis import folder
from slipway.trainer.record import causes, incidents
from slipway.trainer.record.claims import Token
from slipway.trainer.record.incidents import IncidentRecord
from tests.sensors.platform import Platform


def at_once(platform: Platform, **rules: bool) -> None:
    """Nodes in quarantine are diagnosed at once; `rules` of nodes' health are otherwise."""
    compute = platform.compute
    platform.resources["compute"] = EmbeddedCompute(
        jobs=compute.jobs, nodes=compute.nodes, names=compute.names, quarantine={"hold_seconds": 0, **rules}
    )
    platform.repository = build(platform.recipes, platform.resources).get_repository_def()


def hang(store: TrainingStore, node: str, incarnation: int) -> None:
    """The training hung on a node."""
    token, now = str(Token(incarnation)), time.time()
    record = IncidentRecord(token, causes.HUNG, "rank 0 is stuck", "restarted", "test", now, 40, nodes=(node,))
    assert incidents.note(store.folder, record)


def standing(platform: Platform, node: str) -> Standing:
    return platform.compute.node_health(platform.tiers).register.of(node).standing


def diagnosed(platform: Platform, node: str) -> dg.ExecuteInProcessResult:
    """Run the diagnosis as the sensor's request would, but a short one."""
    platform.instance.add_dynamic_partitions("nodes", [node])
    return dg.materialize(
        [preflight],
        instance=platform.instance,
        resources=platform.resources,
        partition_key=node,
        run_config=dg.RunConfig(ops={"platform__preflight": PreflightConfig(seconds=0.5, disk_size="8M")}),
    )


def test_a_node_that_two_incidents_name_is_quarantined_and_a_diagnosis_requested(platform: Platform):
    at_once(platform)
    store = platform.start_training("", run={"steps": 1_000_000})
    hang(store, "node-0", 1)
    platform.apply("node_health")
    assert standing(platform, "node-0") is Standing.SUSPECT
    assert not platform.tick("node_health").run_requests, "one incident twice seen is one incident"
    hang(store, "node-0", 2)
    [request] = platform.tick("node_health").run_requests or ()
    assert request.tags[PARTITION_TAG] == request.tags[keys.DIAGNOSES_TAG] == "node-0"
    assert standing(platform, "node-0") is Standing.QUARANTINED and standing(platform, "node-1") is Standing.HEALTHY
    platform.control.advance(store, "test")
    claim = store.newest_claim()
    assert claim is not None and claim.nodes == ("node-1",)


def test_an_xid_that_a_nodes_kernel_logged_speaks_against_it_also_when_the_node_tells_of_it_late(platform: Platform):
    at_once(platform)
    store = platform.start_training("", run={"steps": 1_000_000})
    killed = IncidentRecord(str(Token(1)), causes.KILLED, "rank 0 was killed", "restarted", "test", time.time(), 40)
    assert incidents.note(store.folder, killed)
    platform.apply("node_health")
    assert standing(platform, "node-1") is Standing.HEALTHY
    kernel_lines = ("Xid (PCI:0000:3b:00): 79: GPU has fallen off the bus",)
    manifest = folder.DiagnosisManifest("node-1", time.time(), 0.1, "a test", (), {}, {}, kernel_lines)
    assert folder.write(store.folder, killed.id, manifest, {})
    platform.apply("node_health")
    assert standing(platform, "node-1") is Standing.QUARANTINED
    assert "fallen off the bus" in platform.compute.node_health(platform.tiers).register.of("node-1").why


def test_the_event_log_has_each_transition_once(platform: Platform):
    at_once(platform)
    hang(platform.start_training("", run={"steps": 1_000_000}), "node-0", 1)
    for _ in range(3):
        platform.apply("node_health")
    [observation] = observations(platform.instance, keys.PREFLIGHT, "node-0")
    assert (observation["standing"], observation["who"]) == ("suspect", "node health")


def requested(platform: Platform) -> list[str]:
    """The nodes whose preflight the sensor requests."""
    return [request.tags[keys.DIAGNOSES_TAG] for request in platform.tick("node_health").run_requests or ()]


def test_a_new_node_is_measured_and_no_training_is_placed_on_it_before(platform: Platform):
    at_once(platform, preflight_joining=True)
    assert not [node.name for node in platform.compute.working_fleet(platform.tiers).nodes() if node.ready]
    assert requested(platform) == ["node-0", "node-1"]
    assert standing(platform, "node-0") is Standing.JOINING


def test_a_suspect_is_measured_once_no_training_runs_on_it(platform: Platform):
    at_once(platform, preflight_incidents=True)
    store = platform.start_training("", run={"steps": 1_000_000})
    assert store.claim(1, ("node-0",), "", "test")
    hang(store, "node-0", 1)
    hang(platform.start_training("again", run={"steps": 1_000_000}), "node-1", 1)
    assert requested(platform) == ["node-1"], "node-0 is at work"
    store.record_exit(1, "stopped", "asked to stop", "test", ("node-0",))
    store.want("stop", "test", "it is enough")
    assert "node-0" in requested(platform)


@pytest.mark.nightly
def test_a_healthy_node_is_released_and_a_faulty_one_goes_to_repair(platform: Platform):
    at_once(platform)
    store = platform.start_training("", run={"steps": 1_000_000})
    for incarnation, node in enumerate(("node-0", "node-0", "node-1", "node-1")):
        hang(store, node, incarnation + 1)
    platform.apply("node_health")
    nvme = Path(platform.tiers.nvme_path("node-1"))
    nvme.parent.mkdir(parents=True, exist_ok=True)
    nvme.write_text("what should be a folder is a file: the disk is not mounted")
    assert standing(platform, "node-1") is Standing.SUSPECT, "never all nodes are out of service at once"
    assert diagnosed(platform, "node-0").success
    platform.apply("node_health")
    assert standing(platform, "node-1") is Standing.QUARANTINED
    assert diagnosed(platform, "node-1").success
    assert standing(platform, "node-0") is Standing.RELEASED and standing(platform, "node-1") is Standing.REPAIR
    fleet = platform.compute.working_fleet(platform.tiers)
    assert [node.name for node in fleet.nodes() if node.ready] == ["node-0"]
    [event] = platform.instance.fetch_materializations(
        dg.AssetRecordsFilter(keys.PREFLIGHT, asset_partitions=["node-1"]), limit=5
    ).records
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    assert metadata["verdict"].value == "faulty" and "disk" in str(metadata["faults"].value)
    assert metadata["standing"].value == "repair"
    [preflight_record] = platform.compute.node_health(platform.tiers).preflights.of("node-1")
    assert (
        (preflight_record.verdict, preflight_record.run) == ("faulty", event.run_id)
        and "disk" in preflight_record.faults
        and len(preflight_record.answers) == 2
    )
