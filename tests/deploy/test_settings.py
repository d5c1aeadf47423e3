"""Dagster's own validation, and the platform's, accept the settings in the chart."""

import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import yaml
from dagster._core.errors import DagsterUserCodeUnreachableError

from slipway import deploy
from slipway.deploy.cluster import values
from slipway.recipes.kubernetes import amount
from slipway.recipes.strict import validate
from slipway.resources.kubernetes.run_launcher import ClusterAway, PatientRunLauncher
from slipway.resources.launchers.kubernetes import pods
from slipway.resources.launchers.protocol import Job
from slipway.resources.platform import ComputeSettings, Platform
from slipway.resources.trainings.quotas import Quota
from slipway.trainer.config import profiles
from slipway.trainer.config.operation import Hardware
from slipway.trainer.node import fabric
from tests.deploy.dagster_runs import instance, platform_settings, run_launcher, setting
from tests.deploy.rendering import FULL, VALUES, pod_templates, settings, workloads
from tests.pod_interfaces import interfaces

DEPLOY = Path(deploy.__file__).parent


@pytest.mark.parametrize("case", VALUES)
def test_dagster_accepts_its_settings(case: str):
    ref = instance(case)
    assert run_launcher(case).job_namespace == "slipway"
    described = (ref.run_coordinator_data, ref.compute_logs_data, ref.local_artifact_storage_data)
    type_names = [type(ref_data.rehydrate(as_type=object)).__name__ for ref_data in described if ref_data]
    assert type_names == ["AttributingRunCoordinator", "LocalComputeLogManager", "LocalArtifactStorage"]


def test_runs_are_kept_in_postgresql():
    storage = instance("minimal").storage_data
    assert storage and storage.class_name == "DagsterPostgresStorage", "SQLite on a shared volume loses data"


def test_runs_have_time_to_pull_their_image():
    monitoring = setting("minimal", "run_monitoring")
    assert monitoring["enabled"] and monitoring["start_timeout_seconds"] == 1800


def test_a_cluster_that_cannot_be_asked_fails_no_run():
    assert isinstance(run_launcher("minimal"), PatientRunLauncher)
    queue = instance("minimal").run_coordinator_data
    assert queue is not None
    settings = yaml.safe_load(queue.config_yaml)
    assert settings["max_user_code_failure_retries"] * settings["user_code_failure_retry_delay"] > 24 * 3600
    assert isinstance(ClusterAway("away"), DagsterUserCodeUnreachableError), "what Dagster's queue tries again"


def test_cancelling_reaches_the_steps():
    monitoring = setting("minimal", "run_monitoring")
    assert monitoring["max_resume_run_attempts"] == 0, "dagster#33923: where runs are resumed, cancelled ones go on"


def test_pool_slots_of_dead_runs_are_freed():
    assert setting("minimal", "run_monitoring")["free_slots_after_run_end_seconds"] > 0


def test_dagster_repeats_no_run():
    assert setting("minimal", "run_retries") == {"enabled": False}


def test_tags_of_runs_may_ask_for_amounts_and_places_only():
    launcher = run_launcher("minimal")
    allowed = dict(launcher.only_allow_user_defined_k8s_config_fields or {})
    assert allowed.pop("container_config") == {"resources": True}
    assert allowed.pop("pod_spec_config") == {"node_selector": True, "affinity": True, "tolerations": True}
    assert not any(allowed.values()) and launcher.only_allow_user_defined_env_vars == []


def test_the_database_is_found_through_the_mounted_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    url = settings("minimal", "instance", "dagster.yaml")["storage"]["postgres"]["postgres_url"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        services = tmp_path / "pg_service.conf"
        port = server.getsockname()[1]
        services.write_text(f"[dagster]\nhost=127.0.0.1\nport={port}\nuser=someone\ndbname=runs\nsslmode=disable\n")
        monkeypatch.setenv("PGSERVICEFILE", str(services))
        greeting: list[bytes] = []

        def hear() -> None:
            connection, _ = server.accept()
            with connection:
                greeting.append(connection.recv(1024))

        listener = threading.Thread(target=hear)
        listener.start()
        with pytest.raises(sqlalchemy.exc.OperationalError):
            sqlalchemy.create_engine(url).connect()
        listener.join()
    assert b"user\0someone\0database\0runs\0" in greeting[0]


@pytest.mark.parametrize("case", VALUES)
def test_the_platform_accepts_its_settings(case: str):
    read = platform_settings(case)
    assert read.compute.cluster.namespace == "slipway-training"
    assert read.compute.cluster.volumes == {"/durable": "slipway-durable", "/nvme": "slipway-nvme"}
    assert (read.tiers.model_dump()["durable"], read.tiers.model_dump()["nvme"]) == ("/durable", "/nvme")


def test_every_setting_of_the_platform_is_a_value_of_the_chart_or_follows_from_others():
    of_values, follow = set(values.PlatformValues.model_fields), {"compute", "user_header", "operators", "promoters"}
    assert set(Platform.model_fields) - of_values == follow
    unneeded, of_its_own = {"kubeconfig", "context"}, {"dask"}  # in pods; a part of the chart beside the platform
    assert set(ComputeSettings.model_fields) - of_values == unneeded | of_its_own
    platform_values, read = FULL["platform"], platform_settings("full")
    assert read.compute.quarantine.apply and read.compute.quarantine.preflight_joining
    assert read.prices is not None and read.prices.spot == platform_values["prices"]["spot"]
    assert read.rank_prices is not None and read.rank_prices.of("team:research").spot == 1.0
    assert read.quotas == {"team:research": Quota(5000.0, "month")}
    assert read.notifications is not None and read.notifications.urls_file == "/secrets/platform/urls"
    assert read.openlineage.key_file == "/secrets/platform/lineage"


def test_the_files_that_settings_name_are_mounted_where_they_are_read():
    mounted = {
        name: [mount["mountPath"] for mount in template["spec"]["containers"][0]["volumeMounts"]]
        for name, template in pod_templates(workloads("full"))
    }
    assert {name for name, paths in mounted.items() if "/secrets/platform" in paths} == {"slipway-code"}
    run = {mount["mountPath"] for mount in run_launcher("full").volume_mounts}
    assert "/secrets/platform" in run


def test_trainings_get_the_address_of_the_object_store():
    cluster = settings("full", "platform", "platform.yaml")["compute"]["cluster"]
    assert {name: value for name, value in cluster["environment"].items() if name.startswith("AWS_")} == {
        "AWS_SHARED_CREDENTIALS_FILE": "/secrets/object-store/credentials",
        "AWS_ENDPOINT_URL": FULL["objectStore"]["endpoint"],
        "AWS_DEFAULT_REGION": "eu-1",
    }


def test_the_overlay_of_the_reference_cluster_gives_what_its_hardware_profile_says():
    compute = settings("h200-32", "platform", "platform.yaml")["compute"]
    profile, cluster = profiles.named(compute["hardware"]), compute["cluster"]
    assert profile.name == "h200-32" and cluster["resources"] == profile.resources()
    assert amount(cluster["shared_memory"]) == profile.shared_bytes
    assert cluster["grace_seconds"] == profile.grace_seconds


def test_the_overlay_of_the_reference_cluster_leaves_nccl_to_the_profile():
    cluster = settings("h200-32", "platform", "platform.yaml")["compute"]["cluster"]
    assert not [name for name in cluster["environment"] if name.startswith("NCCL_")]


def test_the_pods_of_the_reference_cluster_have_the_interfaces_that_their_profile_names():
    compute = validate(ComputeSettings, settings("h200-32", "platform", "platform.yaml")["compute"])
    fabric_profile: Any = profiles.named(compute.hardware).fabric
    named = fabric.variables(Hardware(profile=fabric_profile))
    pod = pods.template("tiny", Job("tiny", ("true",), {}, nodes=("a",)), compute.cluster)
    assert {named["NCCL_SOCKET_IFNAME"], named["GLOO_SOCKET_IFNAME"]} <= interfaces(pod)


def test_no_file_of_a_deployment_sets_a_variable_of_nccl_or_gloo():
    """They have one source, `slipway.trainer.config.profiles`; a raw variable would silently come before it."""
    variables = [
        f"{path.relative_to(DEPLOY)}: {name}"
        for path in sorted(DEPLOY.rglob("*"))
        if path.suffix in (".yaml", ".tpl", ".json") or path.name == "Dockerfile"
        for name in re.findall(r"\b(?:NCCL|GLOO)_[A-Z0-9_]+", path.read_text())
    ]
    assert not variables
