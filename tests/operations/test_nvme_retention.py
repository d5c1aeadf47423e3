"""The weekly retention and what staging shows in the UI: through the platform's own definitions."""

import os
import shutil

import dagster as dg

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.resources.launchers.protocol import JobState
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import WorkQueue
from slipway.trainer.base import paths
from slipway.trainer.staging import leases
from slipway.trainer.staging.stage import is_staged
from tests.sensors.platform import Platform

STAGED = keys.key("texts", "staged_shards")


def staged_on(platform: Platform, *nodes: str) -> str:
    """The current snapshot, staged by Dagster on these nodes, which had nothing before."""
    platform.add(keys.NODES, *nodes)
    for node in nodes:
        shutil.rmtree(platform.tiers.nvme_path(node), ignore_errors=True)
        assert platform.materialize([STAGED], node).success
    current = pointer.current(platform.home.durable, "texts")
    assert current is not None
    return current


def retain(platform: Platform, **limits: float) -> dg.ExecuteInProcessResult:
    job = platform.repository.get_job("nvme_retention")
    config = {"ops": {"retain_on_nodes": {"config": limits}}}
    return job.execute_in_process(config, instance=platform.instance, resources=platform.resources)


def test_the_weekly_job_removes_what_was_not_used_and_keeps_what_is_in_use(platform: Platform):
    current = staged_on(platform, "node-0", "node-1")
    idle, busy = (platform.tiers.nvme_path(node) for node in ("node-0", "node-1"))
    with leases.hold(busy, current):
        for nvme in (idle, busy):
            os.utime(paths.lease(nvme, current), (1, 1))
        assert retain(platform, days=7).success
    assert not is_staged(current, idle) and is_staged(current, busy)


def released(platform: Platform, days: float) -> dg.ExecuteInProcessResult:
    job = platform.repository.get_job("nvme_retention")
    config = {"ops": {"release_jobs": {"config": {"days": days}}}}
    return job.execute_in_process(config, instance=platform.instance, resources=platform.resources)


def test_the_job_of_a_training_that_ended_long_ago_is_released(platform: Platform):
    [store] = [store for store in platform.trainings.stores() if store.exit()]
    name = job_name(store.id, 1)
    assert released(platform, days=7).success
    assert platform.compute.launcher().poll(name).state is JobState.SUCCEEDED
    assert released(platform, days=0).success
    assert platform.compute.launcher().poll(name).state is JobState.MISSING
    assert store.exit() is not None


def test_the_job_of_a_training_with_an_open_duty_stays(platform: Platform):
    store = platform.finished(WorkQueue.CHECKPOINTS)
    assert released(platform, days=0).success
    assert platform.compute.launcher().poll(job_name(store.id, 1)).state is JobState.SUCCEEDED


def test_with_the_defaults_a_snapshot_of_this_week_stays(platform: Platform):
    current = staged_on(platform, "node-0")
    assert retain(platform).success
    assert is_staged(current, platform.tiers.nvme_path("node-0"))


def test_staging_shows_bytes_seconds_and_rate(platform: Platform):
    staged_on(platform, "node-0")
    [materialization] = platform.materializations("staged_shards", "node-0", "texts")
    figures = {
        name: value.value for name, value in materialization.metadata.items() if isinstance(value.value, int | float)
    }
    assert figures["copied_bytes"] == figures["bytes"] > 0
    assert figures["gigabytes_per_second"] == figures["copied_bytes"] / figures["seconds"] / 1e9


def test_a_durable_tier_that_is_too_slow_is_a_warning_that_blocks_nothing(platform: Platform):
    platform.resources["tiers"] = Tiers(
        durable=str(platform.home.durable), nvme=platform.home.nvme, read_gigabytes_per_second=1e-9
    )
    platform.add(keys.NODES, "node-0")
    result = platform.materialize([STAGED], "node-0")
    [check] = result.get_asset_check_evaluations()
    assert result.success and not check.passed and not check.blocking
    assert check.severity is dg.AssetCheckSeverity.WARN
    assert "the durable tier gives 1e-09 GB/s" in (check.description or "")


def test_a_snapshot_that_a_node_cannot_get_in_time_is_a_warning():
    tiers = Tiers(durable="/durable", nvme="/nvme/{node}", read_gigabytes_per_second=200, staging_seconds=60)
    assert tiers.bandwidth_warnings(int(0.5e12), nodes=8) == []
    assert tiers.bandwidth_warnings(int(2e12), nodes=1) == ["a node needs 33.3 GB/s, but gets at most 25 GB/s"]
    assert tiers.bandwidth_warnings(int(1e12), nodes=32) == [
        "32 nodes need 533.3 GB/s, but the durable tier gives 200 GB/s"
    ]


def test_a_tier_that_lost_shards_is_made_up_for_by_another_origin(platform: Platform):
    replica = platform.root / "replica"
    replica.mkdir()
    (platform.home.durable / "shards").rename(replica / "shards")
    platform.resources["tiers"] = Tiers(
        durable=str(platform.home.durable), nvme=platform.home.nvme, origins=[str(replica)]
    )
    current = staged_on(platform, "node-0")
    assert is_staged(current, platform.tiers.nvme_path("node-0"))
    [materialization] = platform.materializations("staged_shards", "node-0", "texts")
    assert "missing" in str(materialization.metadata["origin_faults"].value)


def test_an_origin_with_a_place_for_a_node_stands_for_every_other_node():
    tiers = Tiers(durable="/durable", nvme="/nvme/{node}", origins=["/peers/{node}", "/replica"])
    named = [str(origin) for origin in tiers.staging_origins("b", ["a", "b", "c"])]
    assert named == ["/durable", "/peers/a", "/peers/c", "/replica"]
