"""The garbage collection of the durable tier, through the platform's own definitions: dry by default."""

import os
import socket
from typing import Any

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.resources.mlflow.registry import MANIFEST_TAG, SNAPSHOT_TAG, Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions import promotion
from slipway.resources.promotions.promotion import Promotion
from slipway.trainer.data import shards
from tests.sensors.platform import BY, Platform

LANE = [keys.key("texts", noun) for noun in ("documents", "tokenizer", "snapshot")]


def collect(platform: Platform, **config: Any) -> dg.ExecuteInProcessResult:
    job = platform.repository.get_job("garbage_collection")
    ops = {"ops": {"collect_garbage": {"config": {"snapshots": 0, "hours": 0, **config}}}}
    return job.execute_in_process(ops, instance=platform.instance, resources=platform.resources)


def outdated(platform: Platform) -> str:
    """The snapshot that the dataset pointed at, whose place a newer one has taken; its files are old."""
    durable = platform.home.durable
    before = pointer.current(durable, "texts")
    assert before is not None
    first = min((platform.root / "corpus").rglob("*.py"))
    first.write_text("an entirely new beginning " * 30)
    assert platform.materialize(LANE).success
    assert pointer.current(durable, "texts") != before
    for folder in ("shards", "snapshots", "documents", "segments"):
        for path in (durable / folder).iterdir():
            os.utime(path, (1, 1))
    return before


def is_there(platform: Platform, sha256: str) -> bool:
    described = shards.manifest_path(platform.home.durable, sha256)
    return described.exists() and all(
        shards.shard_path(platform.home.durable, shard).exists()
        for shard in shards.read_manifest(platform.home.durable, sha256).shards()
    )


@pytest.mark.slow
def test_a_run_is_dry_by_default(platform: Platform):
    before = outdated(platform)
    result = collect(platform)
    assert result.success
    assert is_there(platform, before)


@pytest.mark.slow
def test_a_snapshot_that_nothing_refers_to_goes_and_the_current_one_stays(platform: Platform):
    before = outdated(platform)
    assert collect(platform, dry_run=False).success
    assert not is_there(platform, before)
    current = pointer.current(platform.home.durable, "texts")
    assert current is not None
    assert is_there(platform, current)


@pytest.mark.slow
def test_the_snapshot_of_an_unfinished_training_stays(platform: Platform):
    store = platform.proposed("unfinished")
    store.want("run", BY, "the test wants it")
    before = outdated(platform)
    assert store.specification().snapshot == before
    collect(platform, dry_run=False)
    assert is_there(platform, before)


@pytest.mark.slow
def test_the_snapshot_of_a_registered_model_stays(platform: Platform):
    registry = Registry(platform.tracking, platform.home.durable)
    before = outdated(platform)
    registry.register("some-model", platform.home.durable, "", {MANIFEST_TAG: "0" * 64, SNAPSHOT_TAG: before})
    collect(platform, dry_run=False)
    assert is_there(platform, before)


def test_the_snapshot_of_a_champion_stays_whatever_becomes_of_mlflow(platform: Platform):
    before, durable = outdated(platform), platform.home.durable
    record = Promotion("some-model", "1", "0" * 64, None, "", {SNAPSHOT_TAG: before}, "test", "a test", 1.0)
    assert promotion.add(durable, 1, record)
    collect(platform, dry_run=False)
    assert is_there(platform, before)


@pytest.mark.slow
def test_a_registry_that_is_away_stops_the_collection(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    before = outdated(platform)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as silent:  # bound, but it does not listen: connections are refused
        silent.bind(("127.0.0.1", 0))
        platform.resources["tracking"] = Tracking(uri=f"http://127.0.0.1:{silent.getsockname()[1]}")
        job = platform.repository.get_job("garbage_collection")
        ops = {"ops": {"collect_garbage": {"config": {"snapshots": 0, "hours": 0, "dry_run": False}}}}
        result = job.execute_in_process(
            ops, instance=platform.instance, resources=platform.resources, raise_on_error=False
        )
    assert not result.success
    assert is_there(platform, before)
