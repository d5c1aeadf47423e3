"""Node failures: a lost node or no progress leads to a new incarnation; everything else is left alone."""

import os
import signal
from typing import Any

import pytest

from slipway.assets import keys
from slipway.resources import receipts
from slipway.resources.event_log import data_versions
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import TrainingStore
from slipway.sensors.node_failures import BY, LOST
from slipway.trainer.record import ledger
from tests.conftest import Marked, until
from tests.resources.trainings.lab import until_paced
from tests.sensors.platform import Platform

ENDLESS = {"steps": 1_000_000}
STAGED = keys.key("texts", "staged_shards")


def running(platform: Platform, **changes: dict[str, Any]) -> TrainingStore:
    """A training that has a checkpoint."""
    store = platform.start_training("", run=ENDLESS, **changes)
    platform.advance(store, Action.SUBMIT)
    until(store.commits, "the first checkpoint")
    return store


@pytest.mark.slow
def test_a_training_that_makes_progress_is_left_alone(platform: Platform):
    store = running(platform)
    outcome = platform.tick("node_failures")
    assert not outcome.asset_events and not outcome.run_requests
    claim = store.newest_claim()
    assert claim is not None and claim.token.incarnation == 1
    platform.stopped(store)


@pytest.mark.slow
def test_a_lost_node_is_superseded_once_and_job_watch_does_the_rest(platform: Platform):
    store = running(platform)
    platform.compute.fleet().mark_lost("node-0", "the power is gone")
    platform.apply("node_failures")
    claim = store.newest_claim()
    assert claim is not None and (claim.token.incarnation, claim.nodes, claim.by) == (2, ("node-1",), BY)
    platform.apply("job_watch")
    [incident] = platform.observations(store.id)
    assert incident.metadata["cause"].value == claim.cause == "node node-0 is lost: the power is gone"
    assert (incident.metadata["nodes"].value, incident.metadata["disrupted"].value) == ("node-0", True)
    assert "node-0" in str(incident.metadata["tails"].value)
    assert not platform.tick("node_failures").asset_events
    until(lambda: platform.apply("job_watch") is not None and store.read().submitted(2), "the next incarnation")
    # Its trainer may have ended by itself before the job was stopped: it finds out that it was superseded.
    assert platform.compute.launcher().poll(job_name(store.id, 1)).state.terminal
    until(lambda: [event for event in ledger.read(store.folder) if event["event"] == "restored"], "its trainer")
    assert not platform.tick("node_failures").asset_events
    platform.stopped(store)


@pytest.mark.slow
def test_without_a_healthy_node_nothing_is_given_up(platform: Platform):
    store = running(platform)
    for node in ("node-0", "node-1"):
        platform.compute.fleet().mark_lost(node, "a test")
    assert not platform.tick("node_failures").asset_events
    claim = store.newest_claim()
    assert claim is not None and claim.token.incarnation == 1
    platform.stopped(store)


@pytest.mark.slow
def test_a_training_without_progress_past_the_deadline_is_superseded(platform: Platform, marked: Marked):
    store = platform.start_training(
        "", run=ENDLESS, checkpoint={"every": ENDLESS["steps"]}, recovery={"no_progress_seconds": 2.0}
    )
    platform.advance(store, Action.SUBMIT)
    until_paced(store)
    [rank] = marked.running("slipway.trainer")
    os.kill(rank, signal.SIGSTOP)
    until(lambda: platform.apply("node_failures") is not None and store.read().failures, "the deadline to pass")
    claim = store.newest_claim()
    assert claim is not None and claim.token.incarnation == 2
    assert "no progress for" in claim.cause and "the deadline is 2 s" in claim.cause
    assert not platform.tick("node_failures").asset_events
    os.kill(rank, signal.SIGCONT)
    platform.stopped(store)


@pytest.mark.slow
def test_a_training_that_is_being_stopped_is_not_started_again(platform: Platform):
    store = running(platform)
    store.want("stop", BY, "a test")
    platform.compute.fleet().mark_lost("node-0", "a test")
    assert not platform.tick("node_failures").asset_events
    platform.advance(store)


@pytest.mark.slow
def test_a_launcher_that_cannot_be_asked_is_no_failure(platform: Platform):
    store = running(platform, recovery={"no_progress_seconds": 0.1})
    folder = platform.home.jobs / job_name(store.id, 1)
    (platform.root / "away").mkdir()
    away = (folder / "started.json").rename(platform.root / "away" / "started.json")
    (folder / "started.json").mkdir()
    assert not platform.tick("node_failures").asset_events
    (folder / "started.json").rmdir()
    away.rename(folder / "started.json")
    platform.stopped(store)


def test_nodes_that_join_get_a_partition_and_nodes_that_leave_lose_theirs(platform: Platform):
    platform.add(keys.NODES, "node-7")
    platform.apply("node_failures")
    assert sorted(platform.partitions(keys.NODES)) == ["node-0", "node-1"]
    assert not platform.tick("node_failures").dynamic_partitions_requests


def staged_version(platform: Platform, node: str) -> str | None:
    return data_versions(platform.instance, STAGED, [node]).get(node)


def stage(platform: Platform, node: str) -> str:
    """Have the snapshot's shards on a node; the snapshot."""
    platform.add(keys.NODES, node)
    assert platform.materialize([STAGED], node).success
    current = staged_version(platform, node)
    assert current is not None
    return current


def test_the_shards_staged_on_a_lost_node_are_lost_until_they_are_staged_again(platform: Platform):
    platform.start_training("anew")
    snapshot = stage(platform, "node-0")
    assert receipts.holders(platform.home.durable, snapshot) == {"node-0"}
    platform.compute.fleet().mark_lost("node-0", "the power is gone")
    platform.apply("node_failures")
    assert staged_version(platform, "node-0") == LOST
    assert receipts.holders(platform.home.durable, snapshot) == frozenset()
    assert not platform.tick("node_failures").asset_events, "once is enough"
    assert not [request for request in platform.apply("staging") if request.partition_key == "node-0"]
    platform.compute.fleet().restore("node-0")
    requests = platform.apply("staging")
    [again] = [request for request in requests if request.tags["dagster/partition"] == "node-0"]
    assert platform.launch(again).success
    assert staged_version(platform, "node-0") == snapshot


def test_the_shards_staged_on_a_node_that_left_do_not_count_when_it_joins_again(platform: Platform):
    stage(platform, "node-7")
    platform.apply("node_failures")
    assert staged_version(platform, "node-7") == LOST
    assert "node-7" not in platform.partitions(keys.NODES)
