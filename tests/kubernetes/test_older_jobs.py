"""An upgrade with trainings running: jobs that Slipway 0.1 submitted are read, adopted and stopped by this version.

The files in `older/` are all objects of one job, as the code of 0.1 made them; they are never written anew.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import CONFIG_MAPS, PODS
from slipway.resources.launchers import document
from slipway.resources.launchers.kubernetes import access, orders
from slipway.resources.launchers.kubernetes.launcher import KubernetesLauncher
from slipway.resources.launchers.kubernetes.workloads import KINDS
from slipway.resources.launchers.protocol import Job, JobState
from slipway.trainer.base import parsing
from tests.conftest import Marked, until
from tests.kubernetes.live import Live
from tests.kubernetes.simulated.cluster import Cluster as Simulated
from tests.resources.launchers.contract import ended

OLDER = Path(__file__).parent / "older"
AS_WANTED_NOW = Job(
    "train-7-2",
    ("sh", "-c", "exec sleep 600"),
    {"model": "tiny"},
    ("node-0",),
    environment={"SLIPWAY_INCARNATION": "2", "SLIPWAY_NEW_IN_THIS_VERSION": "1"},
    folder="/tmp",
    labels={"training": "train-7", "incarnation": "2"},
    warm_start=True,
)
"""The same job as this version asks for it: with what it knows more."""


@pytest.fixture(params=["job", "jobset"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def launcher(marked: Marked, simulated: Simulated, namespace: str, kind: str) -> Iterator[KubernetesLauncher]:
    """This version's launcher, on a cluster on which 0.1 has submitted the job."""
    client = Client(str(simulated.kubeconfig), namespace=namespace)
    kubernetes_launcher = KubernetesLauncher(
        client, Cluster(image="slipway-trainer:now", namespace=namespace, grace_seconds=5), KINDS[kind]
    )
    order, *parts = written(kind)
    order_object = client.create(CONFIG_MAPS, order)
    assert order_object is not None
    kinds = {object_kind.kind: object_kind for object_kind in access.created_kinds()}
    for part in parts:
        assert client.create(kinds[part["kind"]], orders.owned(part, orders.read(order_object)))
    yield kubernetes_launcher
    Live(client, kubernetes_launcher.cluster).clear()


def written(kind: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((OLDER / f"{kind}.yaml").read_text()))


def uids(launcher: KubernetesLauncher) -> list[str]:
    """Which pods there are."""
    return sorted(pod["metadata"]["uid"] for pod in launcher.client.list(PODS, {}))


def until_running(launcher: KubernetesLauncher) -> None:
    def runs() -> bool:
        status = launcher.poll(AS_WANTED_NOW.name)
        assert status.state.live, status
        return status.state is JobState.RUNNING and status.nodes == ("node-0",)

    until(runs, "the older job to run")


@pytest.mark.nightly
def test_a_job_of_the_older_version_is_adopted_goes_on_as_it_is_and_is_stopped(launcher: KubernetesLauncher):
    until_running(launcher)
    before = uids(launcher)
    launcher.submit(AS_WANTED_NOW)
    assert uids(launcher) == before and launcher.poll(AS_WANTED_NOW.name).state is JobState.RUNNING
    launcher.cancel(AS_WANTED_NOW.name, grace_seconds=5)
    assert ended(launcher, AS_WANTED_NOW.name).state is JobState.STOPPED
    assert launcher.release(AS_WANTED_NOW.name)
    assert launcher.poll(AS_WANTED_NOW.name).state is JobState.MISSING


@pytest.mark.nightly
def test_another_job_does_not_take_the_name_of_an_older_one(launcher: KubernetesLauncher):
    with pytest.raises(ValueError, match="job train-7-2: already submitted with another config"):
        launcher.submit(dataclasses.replace(AS_WANTED_NOW, config={"model": "another"}))


@pytest.mark.pure
def test_the_order_of_an_older_job_is_the_job_with_defaults_for_what_is_new(kind: str):
    order, *_ = written(kind)
    order_job = document.job(parsing.value(order["data"][orders.JOB_FILE]))
    assert order_job == dataclasses.replace(AS_WANTED_NOW, environment={"SLIPWAY_INCARNATION": "2"}, warm_start=False)
