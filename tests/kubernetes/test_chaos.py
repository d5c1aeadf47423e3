"""Chaos on a cluster: what Kubernetes allows is done to pods, nodes and ranks, and the rest is refused."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.cli.main import main
from slipway.operations.chaos import course
from slipway.operations.chaos.cluster import ClusterTarget
from slipway.operations.chaos.faults import FAULTS, possible
from slipway.operations.chaos.report import judged
from slipway.operations.chaos.schedule import PlannedFault
from slipway.resources.fleet.kubernetes.cordon import Cordon
from slipway.resources.home import Home
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.launchers.protocol import JobState
from slipway.trainer.record import incidents
from tests.conftest import Marked
from tests.kubernetes import test_command
from tests.kubernetes.grounds import SimulatedGround
from tests.kubernetes.lab import ClusterLab, open_to_all
from tests.kubernetes.simulated.cluster import Cluster as SimulatedCluster
from tests.resources.trainings.lab import BY, ENDLESS, happened, numbers

cluster, durable = test_command.cluster, test_command.durable


def test_without_apply_the_faults_are_those_that_can_be_done_on_a_cluster(
    durable: Home, capsys: pytest.CaptureFixture[str]
):
    assert main(["chaos", "--minutes", "60", "--json"]) == 0
    planned = {fault["fault"] for fault in json.loads(capsys.readouterr().out)}
    assert planned <= set(possible(on_cluster=True)) and {"pod-deleted", "rank-killed"} <= planned


def test_a_fault_that_needs_a_shell_on_a_node_is_refused(durable: Home, capsys: pytest.CaptureFixture[str]):
    assert main(["chaos", "--fault", "keeper-killed"]) == 1
    assert (
        "found 'keeper-killed', which cannot be done on a cluster; expected one of rank-killed"
        in capsys.readouterr().err
    )


def test_nothing_is_done_unless_the_namespace_is_said(durable: Home, capsys: pytest.CaptureFixture[str]):
    assert main(["chaos", "--apply", "--namespace", "staging"]) == 1
    assert "--namespace: found 'staging', expected 'slipway'" in capsys.readouterr().err
    assert not (durable.root / "durable" / "chaos").exists()


@pytest.fixture
def lab(
    simulated: SimulatedCluster, namespace: str, marked: Marked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClusterLab]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    client = Client(str(simulated.kubeconfig), namespace=namespace)
    own = Cluster(image="slipway-trainer:test", namespace=namespace, grace_seconds=20)
    ground = SimulatedGround(simulated, client, own, tmp_path)
    with open_to_all():
        yield ClusterLab(ground, JobSet())
    ground.clear()


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "fault", ["pod-deleted", "rank-killed", "rank-stopped", "gradients-not-finite", "node-asked", "node-cordoned"]
)
def test_a_fault_on_a_cluster_gets_its_cause_and_the_training_goes_on(lab: ClusterLab, fault: str):
    store = lab.start_training(numbers(ENDLESS, every=200), nodes=2)
    policy = store.run_policy()
    operation = {**policy.operation, "recovery": {"drills": True}}
    store.change_run_policy(dataclasses.replace(policy, operation=operation, hang_seconds=10.0), BY)
    lab.until_committed(store, incarnation=1)
    control, record = lab.cluster_control(), lab.root / "chaos.jsonl"

    def targets() -> list[ClusterTarget]:
        facts = store.read()
        cordon = Cordon(lab.ground.client, {}, lab.durable)
        runs = control.status(facts).state is JobState.RUNNING
        return [ClusterTarget(facts, lab.durable, lab.ground.client, cordon)] if runs else []

    [done] = course.bring_about([PlannedFault(0.0, fault, 0.9)], targets, record)

    def has_incident() -> bool:
        return bool(incidents.names(store.folder))

    if FAULTS[fault].kinds:
        lab.until(has_incident, "the incident", store)
    records = [incidents.read(store.folder, id) for id in incidents.names(store.folder)]
    [result] = judged([done], {store.id: records}, {}).results
    assert result.right, f"{records}, expected one of {FAULTS[fault].kinds}"
    before = max(event["step"] for event in happened(store, "step"))
    lab.until(lambda: happened(store, "step")[-1]["step"] > before + 200, "new steps", store)
    lab.until_stopped(store)
