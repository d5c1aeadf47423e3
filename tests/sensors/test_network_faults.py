"""Network faults: after an incident that names no single node, free nodes are bisected, once."""

import time

import pytest

from slipway.assets import keys
from slipway.definitions import build
from slipway.resources.compute.embedded import EmbeddedCompute
from slipway.resources.node_tasks import network
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.record import causes, incidents
from slipway.trainer.record.claims import Token
from slipway.trainer.record.incidents import IncidentRecord
from tests.sensors.platform import BY, Platform

NODES = ("node-0", "node-1", "node-2")


def of_three_nodes(platform: Platform) -> None:
    compute = platform.compute
    platform.resources["compute"] = EmbeddedCompute(jobs=compute.jobs, nodes=compute.nodes, names=list(NODES))
    platform.repository = build(platform.recipes, platform.resources).get_repository_def()


def interrupted(platform: Platform, kind: str, *nodes: str) -> TrainingStore:
    """A training on three nodes with an incident that names some of them, and that is wanted no more."""
    store = platform.start_training("", run={"steps": 1_000_000})
    assert store.claim(1, NODES, "first start", BY)
    record = IncidentRecord(str(Token(1)), kind, "an exchange failed", "restarted", BY, time.time(), 40, nodes=nodes)
    assert incidents.note(store.folder, record)
    return store


def ended(store: TrainingStore) -> None:
    store.record_exit(1, "failed", "an exchange failed", BY, NODES, kind=causes.NETWORK)
    store.want("stop", BY, "a test")


def test_nodes_are_bisected_once_none_of_them_works_and_what_was_found_is_not_asked_again(platform: Platform):
    of_three_nodes(platform)
    store = interrupted(platform, causes.NETWORK)
    assert not platform.tick("network_faults").run_requests, "its training works on them"
    ended(store)
    [request] = platform.tick("network_faults").run_requests or ()
    about = f"{store.id}/{Token(1)}"
    assert request.tags[keys.BISECTS_TAG] == about
    config = request.run_config["ops"]["bisect_nodes"]["config"]
    assert config == {"nodes": list(NODES), "good": [], "about": about}
    check = network.BisectionResult(about, NODES, (), (), NODES, time.time())
    network.keep(platform.tiers.durable_path, check)
    assert not platform.tick("network_faults").run_requests


def test_an_incident_that_names_one_node_or_is_of_another_kind_calls_for_no_bisection(platform: Platform):
    of_three_nodes(platform)
    ended(interrupted(platform, causes.NETWORK, "node-1"))
    assert not platform.tick("network_faults").run_requests


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_run_measures_groups_of_embedded_nodes_and_what_it_found_stays_on_record(platform: Platform):
    of_three_nodes(platform)
    store = interrupted(platform, causes.NETWORK)
    ended(store)
    [request] = platform.tick("network_faults").run_requests or ()
    config = request.run_config
    config["ops"]["bisect_nodes"]["config"] |= {"megabytes": 1, "seconds": 1.0}
    result = platform.repository.get_job("network_bisect").execute_in_process(
        config, instance=platform.instance, resources=platform.resources
    )
    assert result.success
    [output] = [event for event in result.all_events if event.event_type_value == "STEP_OUTPUT"]
    metadata = output.step_output_data.metadata
    assert metadata["about"].value == f"{store.id}/{Token(1)}"
    named = {node for what in ("bad", "good", "unresolved") for node in str(metadata[what].value).split(", ")}
    assert set(NODES) <= named
    assert not platform.tick("network_faults").run_requests
