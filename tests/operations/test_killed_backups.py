"""`slipway backup` and `slipway restore`, killed before each step on disk.

No half is taken for a whole, nothing is lost, and no scratch folder stays.
"""

import contextlib
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

import dagster as dg
import pytest

from slipway.cli.main import main
from slipway.deploy.embedded import instance
from slipway.operations import metadata_restore
from slipway.resources import metadata_backup, sqlite
from slipway.resources.home import Home
from slipway.trainer.base import digest
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.tiers.copying import fetch
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from tests.kills import killed_at

STEPS = ((Path, "rename"), (shutil, "rmtree"), (shutil, "copyfile"), (sqlite, "copy"))
MOST = 60
RECIPE = """
slipway: dataset/1
description: Small texts
owner: team:data
source: {kind: directory, path: .}
tokenizer: {vocab_size: 300}
split: {validation: 0.25}
shards: {tokens: 5000}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home whose instance was started once, with folders of its own for recipes, backups and temporary files."""
    for variable, name in {"SLIPWAY_RECIPES": "recipes", "SLIPWAY_BACKUP": "backup"}.items():
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    (tmp_path / "recipes" / "datasets").mkdir()
    (tmp_path / "recipes" / "datasets" / "texts.yaml").write_text(RECIPE)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "home"))
    prepared_home = Home(tmp_path / "home")
    instance.prepare(prepared_home)
    with dg.DagsterInstance.from_config(str(prepared_home.dagster)) as started:
        started.add_dynamic_partitions("before", ["a"])
    return prepared_home


def call(*arguments: str) -> None:
    assert main(list(arguments)) == 0


@pytest.mark.slow
def test_a_backup_that_is_killed_at_any_step_is_none_and_leaves_no_scratch_to_the_next(home: Home, tmp_path: Path):
    step = next(step for step in range(MOST) if not killed_at(step, lambda: call("backup"), STEPS))
    assert step > 5
    assert list((tmp_path / "tmp").iterdir()) == []
    tier = FolderTier(tmp_path / "backup")
    for folder in tier.folders(metadata_backup.FOLDER):
        manifest = digest.sha256((tmp_path / "backup" / folder / MANIFEST).read_bytes())
        fetch(tier, folder, manifest, tmp_path / "whole" / Path(folder).name)
    assert metadata_backup.newest(tier)


@pytest.mark.slow
def test_a_restore_that_is_killed_at_any_step_loses_nothing_and_leaves_no_scratch(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert not killed_at(sys.maxsize, lambda: call("backup"))
    (home.dagster / "since").touch()
    outcomes = set()
    for step in range(MOST):
        copy = Home(tmp_path / f"home-{step}")
        shutil.copytree(home.root, copy.root)
        monkeypatch.setenv("SLIPWAY_HOME", str(copy.root))
        killed = killed_at(step, lambda: call("restore"), STEPS)
        metadata_restore.finish(copy)  # as whatever opens the home next does
        was_restored = not (copy.dagster / "since").exists()
        asides = [path for path in copy.root.glob("dagster.before-*") if (path / "since").exists()]
        assert len(asides) == was_restored, "what was there is there, or beside it"
        with contextlib.closing(sqlite3.connect(copy.dagster / "history" / "runs.db")) as runs:
            assert runs.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert not list(copy.root.glob(f"{metadata_restore.SCRATCH}.*"))
        outcomes.add((killed, was_restored))
        if not killed:
            break
    assert outcomes == {(True, False), (True, True), (False, True)} and not list((tmp_path / "tmp").iterdir())
