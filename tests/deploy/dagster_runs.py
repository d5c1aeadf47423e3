"""The pods that are not in the chart: those that Dagster makes for runs and steps, and those of trainings."""

from pathlib import Path
from typing import Any
from unittest import mock

import kubernetes
from dagster._core.instance import InstanceRef
from dagster._core.launcher import RunLauncher
from dagster._core.storage.dagster_run import DagsterRun
from dagster_k8s.container_context import K8sContainerContext
from dagster_k8s.job import construct_dagster_k8s_job

from resources import platform
from resources.kubernetes import pods
from resources.launcher.protocol import Job
from tests.deploy.rendering import Object, text_of

JOB = Job("llama-i1", ("python", "-m", "trainer"), {}, nodes=("a", "b"), ranks_per_node=8)


def instance(case: str, folder: Path) -> InstanceRef:
    """Dagster's own reading of the chart's dagster.yaml. Raises DagsterInvalidConfigError."""
    (folder / "dagster.yaml").write_text(text_of(case, "instance", "dagster.yaml"))
    return InstanceRef.from_dir(str(folder))


def run_launcher(case: str, folder: Path) -> Any:
    """The run launcher of the chart's dagster.yaml; a token to talk to an API server with is not at hand here."""
    with mock.patch.object(kubernetes.config, "load_incluster_config"):
        return instance(case, folder).run_launcher_data.rehydrate(as_type=RunLauncher)


def run_job(case: str, folder: Path) -> Object:
    """The Job that Dagster makes for a run, and for a step that asks for nothing."""
    launcher = run_launcher(case, folder)
    context = K8sContainerContext.create_for_run(DagsterRun("any"), launcher, include_run_tags=False)
    job = construct_dagster_k8s_job(
        context.get_k8s_job_config(None, launcher),
        ["dagster", "api", "execute_run"],
        "dagster-run-1",
        user_defined_k8s_config=context.run_k8s_config,
        component="run_worker",
    )
    return dict(kubernetes.client.ApiClient().sanitize_for_serialization(job))


def training_pod(case: str, folder: Path) -> Object:
    """The pod template of a training, with what the chart's settings say of the cluster."""
    path = folder / "platform.yaml"
    path.write_text(text_of(case, "platform", "platform.yaml"))
    return pods.template("llama-i1", JOB, platform.load(path).compute.cluster, "llama-i1-0")
