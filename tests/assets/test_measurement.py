"""Measuring by jobs: a large checkpoint is evaluated, drilled and exported by a job; small ones stay in one process."""

import dataclasses
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.assets.exporting import Exporting
from slipway.assets.promotion.evaluation import score_of
from slipway.operations.restore_drill import check_name
from slipway.resources.short_jobs import attempts
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.checkpoint.tiers import copying, replicas
from slipway.trainer.record import files
from slipway.trainer.record.scores import Score
from slipway.trainer.start import export
from tests.sensors.platform import BY, TINY, Platform


@pytest.fixture
def store(platform: Platform) -> TrainingStore:
    return platform.finished()


def evaluated_by(store: TrainingStore, **evaluation: Any) -> None:
    """Give the training these fields of the section `evaluation`, and two ranks on a node."""
    policy = store.run_policy()
    operation = {**policy.operation, "evaluation": evaluation}
    store.change_run_policy(dataclasses.replace(policy, operation=operation, ranks_per_node=2), BY, "the test wants it")


def without_its_score(platform: Platform, store: TrainingStore) -> Score:
    """The score of the newest checkpoint, which is removed."""
    commit = store.commits()[-1]
    score = score_of(store.read(), commit)
    assert score is not None
    files.named(store.folder, files.EVALUATIONS, commit.name).unlink()
    platform.add(keys.checkpoint_partitions(TINY), keys.checkpoint_partition(store.id, commit.step))
    return score


def materialized(platform: Platform, store: TrainingStore) -> dg.ExecuteInProcessResult:
    partition = keys.checkpoint_partition(store.id, store.commits()[-1].step)
    return platform.materialize([keys.key(TINY, "evaluation")], partition)


def jobs_of(platform: Platform) -> list[str]:
    folder = platform.home.durable / attempts.FOLDER
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def figures(score: Score) -> Any:
    return pytest.approx((score.loss, score.bits_per_byte, score.accuracy, score.tokens), rel=1e-6)


@pytest.mark.slow
def test_two_ranks_of_a_job_find_the_score_of_one_process(platform: Platform, store: TrainingStore) -> None:
    before, commit = without_its_score(platform, store), store.commits()[-1]
    evaluated_by(store, ranks=2)
    done = materialized(platform, store)
    assert done.success
    after = score_of(store.read(), commit)
    assert after is not None and (after.loss, after.bits_per_byte, after.accuracy, after.tokens) == figures(before)
    [name] = jobs_of(platform)
    assert any(f"job {name}-1, 1 x 2 ranks" in line for line in platform.log_lines(done.run_id))


@pytest.mark.slow
def test_a_small_checkpoint_is_evaluated_without_a_job(platform: Platform, store: TrainingStore) -> None:
    without_its_score(platform, store)
    assert materialized(platform, store).success
    assert jobs_of(platform) == []


def test_ranks_that_the_recipe_cannot_have_are_refused_with_the_field(platform: Platform, store: TrainingStore) -> None:
    without_its_score(platform, store)
    evaluated_by(store, ranks=3)
    done = materialized(platform, store)
    assert not done.success
    message = str(done.get_step_failure_events()[0].step_failure_data.error)
    assert "field evaluation.ranks: found 3, expected 0 or one of 1, 2, for 1 nodes of 2 ranks" in message
    assert jobs_of(platform) == []


@pytest.mark.nightly
def test_the_drill_of_a_large_checkpoint_restores_it_in_a_job(platform: Platform, store: TrainingStore) -> None:
    commit, folder = store.commits()[-1], platform.root / "backup"
    platform.resources["tiers"] = Tiers(durable=str(platform.home.durable), nvme=platform.home.nvme, backup=str(folder))
    folder.mkdir()
    source = platform.home.durable / commit.folder
    replicas.record(
        store.folder,
        commit,
        "backup",
        copying.replicate(source, copying.tier_at(folder), commit.folder, commit.manifest),
    )
    evaluated_by(store, ranks=2)
    key = dg.AssetCheckKey(keys.key(TINY, "checkpoint"), check_name("backup"))
    job = platform.repository.get_implicit_global_asset_job_def().get_subset(
        asset_selection=set(), asset_check_selection={key}
    )
    result = job.execute_in_process(instance=platform.instance, resources=platform.resources)
    [check] = result.get_asset_check_evaluations()
    assert check.passed, check.description
    assert check.metadata["loss"].value == pytest.approx(check.metadata["recorded_loss"].value, rel=1e-5)
    [name] = jobs_of(platform)
    assert not list((platform.home.durable / attempts.FOLDER / name).glob("*/restored/*/*/*")), "the copy is removed"


@pytest.mark.slow
def test_a_job_exports_what_one_process_exports(platform: Platform, store: TrainingStore, tmp_path: Path) -> None:
    evaluated_by(store, process_gigabytes=0)
    commit, policy = store.commits()[-1], store.run_policy()
    exporting = Exporting(platform.tiers, platform.compute, lambda _: None)
    assert exporting.is_for_a_job(commit, policy, tmp_path / "by-job")
    by_job = exporting.export(commit, policy, tmp_path / "by-job", None, "bf16", 10_000)
    in_process = export.export(
        platform.home.durable / commit.folder, tmp_path / "here", commit.manifest, file_bytes=10_000
    )
    assert by_job == in_process, "the manifest has the hash of every byte"
    with pytest.raises(ValueError, match="the folder exists already"):
        exporting.export(commit, policy, tmp_path / "by-job", None, "bf16", 10_000)
