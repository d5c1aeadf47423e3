"""Node health: incidents put a node out of service, a real preflight brings it back or sends it to repair."""

import time
from pathlib import Path

import dagster as dg
import pytest

from assets import keys
from assets.preflight import PreflightConfig, preflight
from definitions import build
from resources.compute.embedded import EmbeddedCompute
from resources.event_log import observations
from resources.fleet.health.standing import Standing
from resources.trainings.store import TrainingStore
from sensors.support.runs import PARTITION_TAG
from tests.sensors.platform import Platform
from trainer.record import causes, incidents
from trainer.record.incidents import IncidentRecord
from trainer.record.tokens import Token


def at_once(platform: Platform) -> None:
    """Nodes in quarantine are diagnosed at once."""
    given = platform.compute
    platform.resources["compute"] = EmbeddedCompute(
        jobs=given.jobs, nodes=given.nodes, names=given.names, quarantine={"hold_seconds": 0}
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
        run_config=dg.RunConfig(ops={"preflight": PreflightConfig(seconds=0.5, disk_size="8M")}),
    )


def test_a_node_that_two_incidents_name_is_quarantined_and_a_diagnosis_requested(platform: Platform):
    at_once(platform)
    store = platform.wanted("", run={"steps": 1_000_000})
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


def test_the_event_log_has_each_transition_once(platform: Platform):
    at_once(platform)
    hang(platform.wanted("", run={"steps": 1_000_000}), "node-0", 1)
    for _ in range(3):
        platform.apply("node_health")
    [shown] = observations(platform.instance, keys.PREFLIGHT, "node-0")
    assert (shown["standing"], shown["who"]) == ("suspect", "node health")


@pytest.mark.slow
def test_a_healthy_node_is_released_and_a_faulty_one_goes_to_repair(platform: Platform):
    at_once(platform)
    store = platform.wanted("", run={"steps": 1_000_000})
    for incarnation, node in enumerate(("node-0", "node-0", "node-1", "node-1")):
        hang(store, node, incarnation + 1)
    platform.apply("node_health")
    nvme = Path(platform.tiers.nvme_path("node-1"))
    nvme.parent.mkdir(parents=True, exist_ok=True)
    nvme.write_text("what should be a folder is a file: the disk is not mounted")
    assert diagnosed(platform, "node-0").success and diagnosed(platform, "node-1").success
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
