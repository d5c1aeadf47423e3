"""The graph that the recipes give, and what loading it costs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

import definitions
import recipes
from recipes.load import load
from resources.home import Home

ROOT = Path(__file__).parents[1]
MODULES = 1600
"""So many modules loading the definitions may import; every run and every sensor pays for them."""
DATASET_NOUNS = ("documents", "snapshot", "staged_shards", "tokenizer")
TRAINING_NOUNS = ("candidate", "champion", "checkpoint", "evaluation", "training")
SCRIPT_NOUNS = ("checkpoint", "training")
SWEEP_NOUNS = ("sweep", "trial")
SENSORS = [
    "checkpoint_arrivals",
    "job_watch",
    "metrics_shipping",
    "node_failures",
    "offers",
    "promotions",
    "staging",
    "sweep_completions",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of Slipway's own recipes."""
    source = Path(recipes.__file__).parent
    for kind in ("datasets", "examples", "trainings", "sweeps"):
        shutil.copytree(source / kind, tmp_path / "recipes" / kind)
    return tmp_path / "recipes"


def built(folder: Path) -> dg.Definitions:
    return definitions.build(load(folder, {}), definitions.embedded_resources(Home(folder.parent / "home")))


def keys_of(defs: dg.Definitions) -> list[str]:
    return sorted(spec.key.to_user_string() for spec in defs.resolve_all_asset_specs())


def lane(name: str, *nouns: str) -> list[str]:
    return [f"{name}/{noun}" for noun in nouns]


def test_each_recipe_is_a_lane_of_assets(folder: Path):
    assert keys_of(built(folder)) == [
        *lane("bigram", *SCRIPT_NOUNS),
        *lane("platform", "metadata_backup", "storage"),
        *lane("python_stdlib", *DATASET_NOUNS),
        *lane("tiny_decoder", *sorted(TRAINING_NOUNS + SWEEP_NOUNS)),
    ]


def test_the_sensors_run_by_default(folder: Path):
    sensors = {sensor.name: sensor.default_status for sensor in built(folder).sensors or []}
    assert sensors == dict.fromkeys(SENSORS, dg.DefaultSensorStatus.RUNNING)


def test_the_schedules_run_by_default(folder: Path):
    schedules = [schedule for schedule in built(folder).schedules or [] if isinstance(schedule, dg.ScheduleDefinition)]
    assert {schedule.name: schedule.cron_schedule for schedule in schedules} == {
        "checkpoint_retention_hourly": "17 * * * *",
        "metadata_backup_schedule": "0 4 * * *",
        "nvme_retention_weekly": "0 2 * * 0",
        "restore_drill_schedule": "30 4 * * *",
        "storage_outlook_schedule": "5 * * * *",
        "tiny_decoder_retraining": "0 3 * * 0",
    }
    assert all(schedule.default_status is dg.DefaultScheduleStatus.RUNNING for schedule in schedules)


def test_a_sweep_has_a_job_from_its_corpus_on(folder: Path):
    job = built(folder).resolve_job_def("tiny_decoder_sweep")
    assert sorted(job.graph.node_dict) == [
        *(f"python_stdlib__{noun}" for noun in ("documents", "snapshot", "tokenizer")),
        "tiny_decoder__sweep",
    ]


def test_every_asset_says_what_it_is_whose_and_of_what_kind(folder: Path):
    for spec in built(folder).resolve_all_asset_specs():
        own = (spec.description, spec.group_name, spec.kinds, list(spec.owners))
        assert all(own), f"{spec.key.to_user_string()}: description, group, kinds, owners: {own}"
        assert spec.group_name == spec.key.path[0]


def test_one_more_file_is_one_more_lane(folder: Path):
    before = built(folder)
    shutil.copy(folder / "trainings" / "tiny-decoder.yaml", folder / "trainings" / "second-decoder.yaml")
    after = built(folder)
    assert sorted(set(keys_of(after)) - set(keys_of(before))) == lane("second_decoder", *TRAINING_NOUNS)
    schedules = {schedule.name for schedule in after.schedules or []}
    assert schedules - {schedule.name for schedule in before.schedules or []} == {"second_decoder_retraining"}


def test_a_dataset_of_images_is_a_lane_without_a_tokenizer(folder: Path):
    before = keys_of(built(folder))
    recipe = "slipway: dataset/1\nsource: {kind: directory, path: ../digits}\nimages: {height: 8, width: 8}\n"
    (folder / "datasets" / "digits.yaml").write_text(recipe)
    added = sorted(set(keys_of(built(folder))) - set(before))
    assert added == lane("digits", "documents", "snapshot", "staged_shards")


def test_everything_fits_together(folder: Path):
    dg.Definitions.validate_loadable(built(folder))


def test_loading_imports_nothing_heavy(tmp_path: Path):
    script = "import json, sys; import definitions; json.dump(sorted(sys.modules), sys.stdout)"
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "SLIPWAY_HOME": str(tmp_path / "home"),
    }
    loaded = json.loads(
        subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
        ).stdout
    )
    assert {"torch", "mlflow", "optuna", "pandas", "ray", "matplotlib"}.isdisjoint(loaded)
    assert len(loaded) < MODULES
    assert not (tmp_path / "home").exists()
