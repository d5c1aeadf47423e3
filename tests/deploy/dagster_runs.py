"""The pods that are not in the chart: those that Dagster makes for runs and steps, and those of trainings."""

import functools
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import kubernetes
from dagster._core.instance import InstanceRef
from dagster._core.storage.dagster_run import DagsterRun
from dagster_k8s import K8sRunLauncher
from dagster_k8s.container_context import K8sContainerContext
from dagster_k8s.job import construct_dagster_k8s_job

from slipway.resources import platform
from slipway.resources.launchers.kubernetes import pods
from slipway.resources.launchers.protocol import Job
from slipway.resources.platform import Platform
from tests.deploy.rendering import Object, text_of

JOB = Job("llama-i1", ("python", "-m", "slipway.trainer"), {}, nodes=("a", "b"), ranks_per_node=8)


@functools.cache
def instance(case: str) -> InstanceRef:
    """Dagster's own reading of the chart's dagster.yaml. Raises DagsterInvalidConfigError."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "dagster.yaml").write_text(text_of(case, "instance", "dagster.yaml"))
        return InstanceRef.from_dir(folder)


def setting(case: str, section: str) -> Any:
    """A section of Dagster's settings, its defaults filled in."""
    return instance(case).settings[section]


@functools.cache
def run_launcher(case: str) -> K8sRunLauncher:
    """The run launcher of the chart's dagster.yaml; it needs no API server's token here."""
    described = instance(case).run_launcher_data
    assert described is not None
    with mock.patch.object(kubernetes.config, "load_incluster_config"):
        return described.rehydrate(as_type=K8sRunLauncher)


@functools.cache
def run_job(case: str) -> Object:
    """The Job that Dagster makes for a run, and for a step without resources of its own."""
    launcher = run_launcher(case)
    context = K8sContainerContext.create_for_run(DagsterRun("any"), launcher, include_run_tags=False)
    job = construct_dagster_k8s_job(
        context.get_k8s_job_config(None, launcher),
        ["dagster", "api", "execute_run"],
        "dagster-run-1",
        user_defined_k8s_config=context.run_k8s_config,
        component="run_worker",
    )
    return dict(kubernetes.client.ApiClient().sanitize_for_serialization(job))


@functools.cache
def platform_settings(case: str) -> Platform:
    """The platform's own reading of its settings in the chart. Raises InvalidRecipes."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text_of(case, "platform", "platform.yaml"))
        file.flush()
        return platform.load(Path(file.name))


@functools.cache
def training_pod(case: str) -> Object:
    """The pod template of a training, with the cluster of the chart's settings."""
    return pods.template("llama-i1", JOB, platform_settings(case).compute.cluster)
