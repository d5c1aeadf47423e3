"""Backup of the metadata: consistent while it is written to, verified, and really restored."""

import contextlib
import functools
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from slipway.assets.datasets.documents import held_out
from slipway.operations import metadata_backup as asset
from slipway.resources import metadata_backup, sqlite
from slipway.resources.metadata_backup import Figures
from slipway.resources.mlflow.registry import MANIFEST_TAG, Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.trainer.base import digest
from slipway.trainer.base.paths import CODE
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, CheckpointFile, CheckpointManifest
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers.copying import fetch
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable
from tests.disks import mounted
from tests.kills import killed_at
from tests.sensors.platform import Platform


@pytest.fixture
def backup(tracked: Platform, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The backup tier of a platform whose recipes, runs and registered models there are."""
    folder = tracked.root / "backup"
    folder.mkdir()
    monkeypatch.setenv("SLIPWAY_RECIPES", str(tracked.root / "recipes"))
    tracked.resources["tiers"] = Tiers(durable=str(tracked.home.durable), nvme=tracked.home.nvme, backup=str(folder))
    Registry(tracked.tracking, tracked.home.durable).register("a-model", folder, "", {MANIFEST_TAG: "0" * 64})
    return folder


def figures(metadata: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, float]:
    return {name: value.value for name, value in metadata.items() if isinstance(value.value, int | float)}


def backed_up(platform: Platform) -> tuple[dg.AssetMaterialization, dg.AssetCheckEvaluation]:
    result = platform.materialize([asset.KEY])
    assert result.success
    [materialization] = result.asset_materializations_for_node("platform__metadata_backup")
    [check] = result.get_asset_check_evaluations()
    return materialization, check


def test_a_backup_is_restored_and_holds_what_was_counted(tracked: Platform, backup: Path):
    materialization, check = backed_up(tracked)
    assert check.passed, check.description
    restored = {name: figures(check.metadata)[name] for name in ("runs", "models", "recipes")}
    assert restored == {"runs": tracked.instance.get_runs_count(), "models": 1, "recipes": 3}
    assert figures(materialization.metadata)["bytes"] > 0


def test_recipes_are_backed_up_as_they_are_whatever_they_name_and_whether_or_not_they_are_right(
    tracked: Platform, backup: Path
):
    """Code that a recipe names lies elsewhere, and a recipe that is wrong must not cost the databases their backup."""
    below = tracked.root / "recipes" / "trainings"
    (below / "by-script.yaml").write_bytes((CODE / "recipes" / "trainings" / "bigram.yaml").read_bytes())
    (below / "wrong.yaml").write_bytes(b"run: [\n\xff")
    (below / "gone.yaml").symlink_to(tracked.root / "nowhere")
    os.mkfifo(below / "pipe.yaml")
    backup_record = asset.back_up(tracked.instance, tracked.tiers, tracked.tracking, tracked.root / "recipes")
    restored_figures = metadata_backup.restore(
        FolderTier(backup), backup_record.folder, backup_record.manifest, tracked.root / "restored"
    )
    assert restored_figures == backup_record.figures and restored_figures.recipes == 5, restored_figures
    restored_recipes = tracked.root / "restored" / "recipes" / "trainings"
    for name in ("by-script.yaml", "wrong.yaml"):
        assert (restored_recipes / name).read_bytes() == (below / name).read_bytes()
    assert not (restored_recipes / "gone.yaml").exists() and not (restored_recipes / "pipe.yaml").exists()


def test_two_backups_of_one_second_are_two(tracked: Platform, backup: Path):
    figures = Figures(runs=0, experiments=0, models=0, recipes=0)
    sources = (tracked.root / "dagster", tracked.tracking, tracked.root / "recipes", figures, FolderTier(backup))
    first, second = (metadata_backup.back_up(*sources, now=1e9 + part) for part in (0.25, 0.5))
    for number, backup_record in enumerate((first, second)):
        metadata_backup.restore(
            FolderTier(backup), backup_record.folder, backup_record.manifest, tracked.root / f"restored-{number}"
        )
    assert first.folder < second.folder


def test_a_backup_that_finds_the_disk_full_leaves_nothing_there(tracked: Platform, backup: Path, tmp_path: Path):
    figures = Figures(runs=0, experiments=0, models=0, recipes=0)
    with mounted(tmp_path / "full", "size=256k") as disk:
        tier = FolderTier(disk)
        with pytest.raises(TierUnavailable, match="No space left"):
            metadata_backup.back_up(
                tracked.root / "dagster", tracked.tracking, tracked.root / "recipes", figures, tier, now=1e9
            )
        assert [path for path in disk.rglob("*") if path.is_file()] == [] and tier.folders("metadata") == {}


def test_a_backup_that_is_killed_at_any_write_is_none_and_the_next_days_removes_what_it_left(tmp_path: Path):
    for folder in ("dagster", "recipes", "tier"):
        (tmp_path / folder).mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "dagster" / "runs.db")) as database, database:
        database.execute("CREATE TABLE runs (a)")
    tier, day = FolderTier(tmp_path / "tier"), 86400.0

    def back_up(at: float) -> metadata_backup.Backup:
        figures = Figures(runs=0, experiments=0, models=0, recipes=0)
        return metadata_backup.back_up(tmp_path / "dagster", Tracking(), tmp_path / "recipes", figures, tier, at)

    folders: list[str] = []
    for write in range(20):
        at = 2 * write * day
        killed = killed_at(write, functools.partial(back_up, at))
        for folder in tier.folders("metadata"):
            manifest = digest.sha256((tmp_path / "tier" / folder / MANIFEST).read_bytes())
            fetch(tier, folder, manifest, tmp_path / "whole" / f"{write}-{folder.rpartition('/')[2]}")
        if not killed:
            break
        folders.append(back_up(at + 3600).folder)  # another one, while the killed one might still be written
        assert metadata_backup.newest(tier) == folders[-1]
    assert 3 < write < 19
    assert len(list((tmp_path / "tier" / "metadata").iterdir())) == len(folders) + 1, "the whole ones, and no other"


def test_a_restored_backup_is_a_home_with_its_history(tracked: Platform, backup: Path):
    materialization, _ = backed_up(tracked)
    version = (materialization.tags or {})["dagster/data_version"]
    folder = str(materialization.metadata["folder"].value)
    metadata_backup.restore(FolderTier(backup), folder, version, tracked.root / "restored")
    with dg.DagsterInstance.local_temp(str(tracked.root / "restored" / "dagster")) as instance:
        runs = {run.run_id for run in tracked.instance.get_runs()}
        assert {run.run_id for run in instance.get_runs()} == runs
    texts = (tracked.root / "restored" / "recipes" / "datasets" / "texts.yaml").read_bytes()
    assert texts == (tracked.root / "recipes" / "datasets" / "texts.yaml").read_bytes()


def test_a_damaged_backup_is_not_restored(tracked: Platform, backup: Path):
    materialization, _ = backed_up(tracked)
    folder, path = str(materialization.metadata["folder"].value), next(backup.rglob("mlflow.db"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedCheckpoint, match=r"mlflow.db: found BLAKE3"):
        version = (materialization.tags or {})["dagster/data_version"]
        metadata_backup.restore(FolderTier(backup), folder, version, tracked.root / "restored")
    assert not (tracked.root / "restored").exists()


def test_a_backup_that_holds_less_than_was_counted_is_refused(tracked: Platform, backup: Path):
    more = Figures(runs=1000, experiments=0, models=0, recipes=0)
    recipes, dagster = tracked.root / "recipes", tracked.root / "dagster"
    backup_record = metadata_backup.back_up(dagster, tracked.tracking, recipes, more, FolderTier(backup), now=0)
    with pytest.raises(ValueError, match=r"metadata/19700101T000000\.000000Z: found \d+ runs, expected 1000 or more"):
        metadata_backup.restore(
            FolderTier(backup), backup_record.folder, backup_record.manifest, tracked.root / "restored"
        )


def test_a_backup_makes_no_tracking_database_where_nothing_was_tracked(platform: Platform):
    tier, recipes = platform.root / "backup", platform.root / "recipes"
    tier.mkdir()
    tiers = Tiers(durable=str(platform.home.durable), nvme=platform.home.nvme, backup=str(tier))
    backup_record = asset.back_up(platform.instance, tiers, platform.tracking, recipes)
    assert (backup_record.figures.experiments, backup_record.figures.models) == (0, 0)
    assert not (platform.home.root / "mlflow.db").exists()
    metadata_backup.restore(FolderTier(tier), backup_record.folder, backup_record.manifest, platform.root / "restored")


def test_a_copy_of_a_database_that_is_being_written_is_consistent(tmp_path: Path):
    with sqlite3.connect(tmp_path / "live.db") as live:
        live.execute("PRAGMA journal_mode=WAL")
        live.execute("CREATE TABLE pairs (a, b)")
        live.execute("INSERT INTO pairs VALUES (1, 1)")
        live.commit()
        live.execute("INSERT INTO pairs VALUES (2, 2)")  # not committed
        sqlite.copy(tmp_path / "live.db", tmp_path / "copies" / "copy.db")
    copy = sqlite3.connect(tmp_path / "copies" / "copy.db")
    assert copy.execute("SELECT * FROM pairs").fetchall() == [(1, 1)]
    copy.close()


def test_the_newest_backups_stay(tmp_path: Path):
    tier = FolderTier(tmp_path)
    names = [f"metadata/2026010{day}T000000Z" for day in range(1, 6)]
    for name in names:
        file = CheckpointFile(2, digest.of_bytes(b"{}"))
        tier.put(name, "figures.json", iter([b"{}"]), file)
        tier.finish(name, CheckpointManifest("metadata/1", {"figures.json": file}).encode())
    assert metadata_backup.prune(tier, keep=2, newest_backup=names[1]) == [names[0], names[2]], (
        "a clock may be set back"
    )
    assert metadata_backup.prune(tier, keep=2) == [names[1]]
    assert list(tier.folders("metadata")) == names[3:]


def test_what_dagster_keeps_of_each_step_is_neither_searched_nor_backed_up(tracked: Platform, backup: Path):
    dagster = tracked.root / "some-dagster"
    for name in ("storage/run/step.db", "history/runs.db"):
        (dagster / name).parent.mkdir(parents=True)
        sqlite3.connect(dagster / name).close()
    assert metadata_backup._databases(dagster) == [dagster / "history" / "runs.db"]


def test_a_backup_has_what_a_small_dataset_holds_out(tmp_path: Path):
    note = held_out.path(tmp_path / "durable", "small")
    note.parent.mkdir(parents=True)
    note.write_text('{"identity": "00ab"}')
    [(name, path)] = asset.records_of(tmp_path / "durable")
    assert (name, path) == ("datasets/small/held_out.json", note)
