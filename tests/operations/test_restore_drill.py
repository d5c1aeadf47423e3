"""Restore drill: a checkpoint of each tier is really restored, and its loss compared with the recorded one."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.operations.restore_drill import check_name
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec
from slipway.trainer.checkpoint.tiers import copying, replicas
from slipway.trainer.record.fence import Commit
from tests.sensors.platform import Platform


@pytest.fixture
def store(platform: Platform) -> TrainingStore:
    return platform.finished()


def drilled(platform: Platform, *chosen: str) -> dict[str, dg.AssetCheckEvaluation]:
    """The evaluations of the drill's checks, of these tiers alone."""
    check_keys = [dg.AssetCheckKey(keys.key("tiny", "checkpoint"), check_name(tier)) for tier in chosen]
    job = platform.repository.get_implicit_global_asset_job_def().get_subset(
        asset_selection=set(), asset_check_selection=set(check_keys)
    )
    result = job.execute_in_process(instance=platform.instance, resources=platform.resources, raise_on_error=False)
    return {evaluation.check_name.rpartition("_")[2]: evaluation for evaluation in result.get_asset_check_evaluations()}


def newest_file(platform: Platform, commit: Commit) -> Path:
    folder = platform.home.durable / commit.folder
    return max(folder.iterdir(), key=lambda path: path.stat().st_size)


@pytest.mark.slow
def test_the_newest_checkpoint_of_each_tier_has_its_recorded_loss(platform: Platform, store: TrainingStore):
    commit, folder = store.commits()[-1], platform.root / "backup"
    source, node = platform.home.durable / commit.folder, platform.tiers.nvme_path("node-1")
    platform.resources["tiers"] = Tiers(durable=str(platform.home.durable), nvme=platform.home.nvme, backup=str(folder))
    for tier, root in {"backup": folder, "nvme": node}.items():
        root.mkdir(parents=True, exist_ok=True)
        size = copying.replicate(source, copying.tier_at(root), commit.folder, commit.manifest)
        replicas.record(store.folder, commit, tier, size)
    evaluations = drilled(platform, "nvme", "durable", "backup")
    assert sorted(evaluations) == ["backup", "durable", "nvme"]
    for evaluation in evaluations.values():
        assert evaluation.passed, evaluation.description
        assert evaluation.metadata["step"].value == commit.step
        assert evaluation.metadata["loss"].value == pytest.approx(evaluation.metadata["recorded_loss"].value, rel=1e-4)


def test_a_flipped_bit_fails_the_drill_and_is_named(platform: Platform, store: TrainingStore):
    path = newest_file(platform, store.commits()[-1])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    check = drilled(platform, "durable")["durable"]
    assert not check.passed
    assert f"{path.name}: found BLAKE3" in (check.description or "")


@pytest.mark.slow
def test_weights_whose_loss_is_another_fail_the_drill(platform: Platform, store: TrainingStore):
    path = store.folder / "evaluations" / f"{store.commits()[-1].name}.json"
    recorded = codec.read(path, dict[str, Any])
    codec.replace(path, {**recorded, "loss": recorded["loss"] * 1.01})
    check = drilled(platform, "durable")["durable"]
    assert not check.passed
    assert "is on record" in (check.description or "")


def test_a_tier_without_checkpoints_has_nothing_to_restore_and_says_so(platform: Platform, store: TrainingStore):
    (platform.tiers.nvme_path("node-0") / "checkpoints").mkdir(parents=True)
    evaluations = drilled(platform, "nvme", "backup")
    assert evaluations["backup"].metadata["note"].value == "there is no such tier here"
    assert evaluations["nvme"].metadata["note"].value == "it holds no evaluated checkpoint yet"


def test_the_drill_runs_each_night(platform: Platform):
    schedule = platform.repository.get_schedule_def("restore_drill_schedule")
    job = platform.repository.get_job(schedule.job_name)
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    assert {key.name for key in job.asset_layer.asset_graph.asset_check_keys} == {
        check_name(tier) for tier in ("nvme", "durable", "backup")
    }
