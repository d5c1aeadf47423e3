"""The graph that the recipes give, and what loading it costs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.executor.in_process import InProcessExecutor
from dagster._core.executor.step_delegating import StepDelegatingExecutor
from dagster._core.system_config.objects import ResolvedRunConfig
from dagster_k8s.job import get_user_defined_k8s_config

from slipway import definitions, recipes
from slipway.assets.execution.pods import WEIGHT
from slipway.recipes.load import load
from slipway.resources import platform
from slipway.resources.home import Home
from slipway.resources.resource_sets import embedded_resources
from tests.kubernetes.settings import settings, write

ROOT = Path(__file__).parents[1]
MODULES = 1840
"""So many modules loading the definitions may import; every run and every sensor pays for them."""
DATASET_NOUNS = ("documents", "snapshot", "staged_shards", "tokenizer")
TRAINING_NOUNS = ("candidate", "champion", "checkpoint", "evaluation", "incident", "training")
SCRIPT_NOUNS = ("checkpoint", "incident", "training")
SWEEP_NOUNS = ("sweep", "trial")
SENSORS = [
    "checkpoint_arrivals",
    "incidents",
    "job_watch",
    "run_starts",
    "metrics_shipping",
    "notifications",
    "node_failures",
    "node_health",
    "network_faults",
    "node_demand",
    "offers",
    "promotions",
    "serving",
    "renewals",
    "staging",
    "standings",
    "suites",
    "sweep_completions",
    "terms",
    "openlineage",
    "traces",
]
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "there", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "slipway", "user": {}}],
    "contexts": [{"name": "there", "context": {"cluster": "there", "user": "slipway"}}],
    "current-context": "there",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of Slipway's own recipes."""
    source = Path(recipes.__file__).parent
    for kind in ("datasets", "examples", "suites", "trainings", "sweeps"):
        shutil.copytree(source / kind, tmp_path / "recipes" / kind)
    return tmp_path / "recipes"


def built(folder: Path) -> dg.Definitions:
    return definitions.build(load(folder, {}), embedded_resources(Home(folder.parent / "home")))


def built_for_a_cluster(folder: Path) -> dg.Definitions:
    file = write(folder.parent / "platform.yaml", settings(node_tasks={"priority": "upkeep"}))
    return definitions.of_cluster(load(folder, {}), platform.load(file))


def keys_of(defs: dg.Definitions) -> list[str]:
    return sorted(spec.key.to_user_string() for spec in defs.resolve_all_asset_specs())


def lane(name: str, *nouns: str) -> list[str]:
    return [f"{name}/{noun}" for noun in nouns]


def test_each_recipe_is_a_lane_of_assets(folder: Path):
    assert keys_of(built(folder)) == [
        *lane("bigram", *SCRIPT_NOUNS),
        *lane("platform", "incidents", "metadata_backup", "morning", "preflight", "storage"),
        *lane("python_stdlib", *sorted([*DATASET_NOUNS, "suite"])),
        *lane("slipway_tiny_decoder", "served"),
        *lane("tiny_decoder", *sorted(TRAINING_NOUNS + SWEEP_NOUNS)),
    ]


def test_the_sensors_run_by_default(folder: Path):
    sensors = {sensor.name: sensor.default_status for sensor in built(folder).sensors or []}
    assert sensors == dict.fromkeys(SENSORS, dg.DefaultSensorStatus.RUNNING)


def test_the_schedules_run_by_default(folder: Path):
    schedules = [schedule for schedule in built(folder).schedules or [] if isinstance(schedule, dg.ScheduleDefinition)]
    assert {schedule.name: schedule.cron_schedule for schedule in schedules} == {
        "checkpoint_retention_hourly": "17 * * * *",
        "export_retention_nightly": "45 3 * * *",
        "metadata_backup_schedule": "0 4 * * *",
        "morning_after_schedule": "0 6 * * *",
        "nvme_retention_weekly": "0 2 * * 0",
        "restore_drill_schedule": "30 4 * * *",
        "scrub_schedule": "30 2 * * *",
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


def test_a_registered_model_is_shown_whatever_signs_its_name_has(folder: Path):
    recipe = folder / "trainings" / "tiny-decoder.yaml"
    named = recipe.read_text().replace("registered_model: slipway-tiny-decoder", "registered_model: Llama-3.1@tiny")
    recipe.write_text(named)
    defs = built(folder)
    assert lane("Llama_3_1_tiny", "served")[0] in keys_of(defs)
    assert defs.resolve_job_def("Llama_3_1_tiny_promote")
    dg.Definitions.validate_loadable(defs)


def test_a_dataset_of_images_is_a_lane_without_a_tokenizer(folder: Path):
    before = keys_of(built(folder))
    recipe = "slipway: dataset/1\nsource: {kind: directory, path: ../digits}\nimages: {height: 8, width: 8}\n"
    (folder / "datasets" / "digits.yaml").write_text(recipe)
    added = sorted(set(keys_of(built(folder))) - set(before))
    assert added == lane("digits", "documents", "snapshot", "staged_shards")


def test_everything_fits_together(folder: Path):
    dg.Definitions.validate_loadable(built(folder))


@pytest.mark.slow
def test_loading_imports_nothing_heavy(tmp_path: Path):
    script = "import json, sys; import slipway.definitions; json.dump(sorted(sys.modules), sys.stdout)"
    environ = {
        # A measurement of coverage would load modules of its own.
        **{name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
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


def test_on_a_cluster_there_are_the_same_assets_sensors_and_schedules(folder: Path):
    embedded, there = built(folder), built_for_a_cluster(folder)
    assert set(keys_of(embedded)) == set(keys_of(there))
    assert {sensor.name for sensor in embedded.sensors or []} == {sensor.name for sensor in there.sensors or []}
    schedules = [{schedule.name for schedule in defs.schedules or []} for defs in (embedded, there)]
    assert schedules[0] == schedules[1] and "metadata_backup_schedule" in schedules[1]
    dg.Definitions.validate_loadable(there)


def test_a_code_location_is_of_the_cluster_that_its_environment_names(folder: Path):
    file = write(folder.parent / "platform.yaml", settings())
    environ = {"SLIPWAY_RECIPES": str(folder), "SLIPWAY_PLATFORM": str(file)}
    assert keys_of(definitions.here(environ)) == keys_of(built_for_a_cluster(folder))


def steps(defs: dg.Definitions) -> dict[str, dict[str, str]]:
    """The tags of every op, asset and check, by its name."""
    return {node.name: dict(node.tags) for job in defs.resolve_all_job_defs() for node in job.nodes}


def test_every_step_says_what_its_pod_needs(folder: Path):
    for name, tags in steps(built_for_a_cluster(folder)).items():
        resources = get_user_defined_k8s_config(tags).container_config["resources"]
        assert {"cpu", "memory", "ephemeral-storage"} == set(resources["requests"]), name
        assert {"memory", "ephemeral-storage"} <= set(resources["limits"]), name


def test_a_dataset_recipe_may_say_what_its_build_needs(folder: Path):
    recipe = folder / "datasets" / "python-stdlib.yaml"
    recipe.write_text(f"{recipe.read_text()}\nresources: {{memory: 256Gi}}\n")
    tags = steps(built_for_a_cluster(folder))["python_stdlib__documents"]
    resources = get_user_defined_k8s_config(tags).container_config["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == "256Gi"


def executor_for(defs: dg.Definitions, kubeconfig: Path, *assets: str) -> dg.Executor:
    """What executes a run of these assets, on the cluster of a kubeconfig."""
    asset_job = defs.get_repository_def().get_implicit_global_asset_job_def()
    job = asset_job.get_subset(asset_selection={dg.AssetKey.from_user_string(asset) for asset in assets})
    config = ResolvedRunConfig.build(job, {}).execution.execution_engine_config
    launcher = {
        "load_incluster_config": False,
        "kubeconfig_file": str(kubeconfig),
        "job_namespace": "slipway",
        "service_account_name": "slipway-run",
        "instance_config_map": "instance",
        "dagster_home": "/etc/dagster",
        "job_image": "platform",
    }
    launcher_settings = {
        "module": "slipway.resources.kubernetes.run_launcher",
        "class": "PatientRunLauncher",
        "config": launcher,
    }
    definition = job.executor_def
    assert definition.executor_creation_fn is not None
    with dg.instance_for_test({"run_launcher": launcher_settings}) as instance:
        return definition.executor_creation_fn(dg.InitExecutorContext(InMemoryJob(job), definition, config, instance))


def test_who_waits_does_so_in_the_run_s_own_pod_and_work_has_pods_of_its_own(folder: Path):
    defs, kubeconfig = built_for_a_cluster(folder), folder.parent / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    waiting, working = ["tiny_decoder/training"], ["tiny_decoder/training", "python_stdlib/documents"]
    assert {steps(defs)[name.replace("/", "__")][WEIGHT] for name in working} == {"light", "heavy"}
    assert isinstance(executor_for(defs, kubeconfig, *waiting), InProcessExecutor)
    assert isinstance(executor_for(defs, kubeconfig, *working), StepDelegatingExecutor)
