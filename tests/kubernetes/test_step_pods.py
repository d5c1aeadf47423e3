"""The pods of heavy steps: sized for the cluster, refused where no node fits, and heard while they wait.

Dagster's own executor runs the steps; the API server and its scheduler are the simulated ones.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster_k8s import k8s_job_executor

from slipway.assets.execution import executor, pods
from slipway.assets.execution.executor import CONFIGURED, cluster_executor
from slipway.recipes.strict import validate
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.objects import JOBS, PODS
from slipway.resources.platform import ComputeSettings
from tests.conftest import until
from tests.kubernetes.simulated.cluster import Cluster as Simulated

IMAGE = "registry.example/slipway/platform:1"
DAGSTERS = k8s_job_executor.config_schema.as_field().config_type.fields  # type: ignore[attr-defined]
LOWERED = {"most": {"cpu": "1500m", "memory": "2Gi", "ephemeral-storage": "4Gi"}, "requests": {"cpu": "100m"}}


def job_of(**steps: object) -> dg.JobDefinition:
    """A job with one heavy step, on a cluster with these settings of steps."""

    @dg.op(tags=pods.tags("evaluation"))
    def evaluation() -> None:
        pass

    @dg.job(executor_def=cluster_executor(validate(ComputeSettings, {"cluster": {"image": IMAGE}, "steps": steps})))
    def evaluate() -> None:
        evaluation()

    return evaluate


def too_large() -> dg.JobDefinition:
    return job_of(needs={"evaluation": {"memory": "4Ti"}})


def lowered() -> dg.JobDefinition:
    return job_of(**LOWERED)


@pytest.mark.parametrize("field", sorted(set(DAGSTERS) - set(CONFIGURED)))
def test_a_person_who_launches_a_run_gives_its_pods_no_other_image_account_mount_or_variable(field: str):
    """The limits of tags do not hold for what the launchpad has below `execution`."""
    job = lowered()
    assert dg.validate_run_config(job, {"execution": {"config": {"max_concurrent": 2}}})
    with pytest.raises(dg.DagsterInvalidConfigError, match=f'unexpected config entry "{field}"'):
        dg.validate_run_config(job, {"execution": {"config": {field: {}}}})


@pytest.fixture
def client(simulated: Simulated, namespace: str) -> Client:
    return Client(str(simulated.kubeconfig), namespace=namespace)


@pytest.fixture
def instance(
    simulated: Simulated, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setattr(executor, "LOOK_SECONDS", 1)
    launcher = {
        "load_incluster_config": False,
        "kubeconfig_file": str(simulated.kubeconfig),
        "job_namespace": namespace,
        "service_account_name": "slipway-trainer",
        "instance_config_map": "instance",
        "dagster_home": "/etc/dagster",
        "job_image": IMAGE,
    }
    launcher_settings = {
        "module": "slipway.resources.kubernetes.run_launcher",
        "class": "PatientRunLauncher",
        "config": launcher,
    }
    with dg.instance_for_test({"run_launcher": launcher_settings}, temp_dir=str(tmp_path)) as dagster_instance:
        yield dagster_instance


def messages(instance: dg.DagsterInstance) -> list[str]:
    """What the log of the only run says, the errors of its steps included."""
    records = instance.get_run_records()
    entries = [entry for record in records for entry in instance.all_logs(record.dagster_run.run_id)]
    events = [entry.dagster_event for entry in entries if entry.dagster_event]
    errors = [event.step_failure_data.error for event in events if event.is_step_failure]
    return [*(event.message or "" for event in events), *(error.message for error in errors if error)]


def test_a_step_that_fits_on_no_node_fails_with_what_is_missing(instance: dg.DagsterInstance, client: Client):
    done = dg.execute_job(dg.reconstructable(too_large), instance)
    assert not done.success
    [reason] = [message for message in messages(instance) if "fits on no node" in message]
    assert "it asks for memory 4Ti, and the largest node, node-" in reason and "has memory 512Gi" in reason
    assert "placement.steps.evaluation" in reason and "compute.steps.needs.evaluation" in reason
    assert client.list(JOBS, {}) == []


def test_a_step_that_waits_says_why_and_has_the_amounts_of_the_cluster(
    instance: dg.DagsterInstance, client: Client, simulated: Simulated
):
    for node in ("node-0", "node-1"):
        simulated.taint(node, "slipway/quarantine", "NoSchedule")
    run = threading.Thread(target=lambda: dg.execute_job(dg.reconstructable(lowered), instance))
    run.start()
    try:
        until(
            lambda: any("evaluation waits: 1 pod: Unschedulable" in message for message in messages(instance)), "a word"
        )
        [pod] = client.list(PODS, {})
        resources = pod["spec"]["containers"][0]["resources"]
        assert resources["limits"] == LOWERED["most"]
        assert resources["requests"] == {**LOWERED["most"], "cpu": "100m"}
    finally:
        for job in client.list(JOBS, {}):
            client.delete(JOBS, job["metadata"]["name"])
        run.join()
