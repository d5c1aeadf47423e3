"""Drills: what happens to a training on a cluster that loses pods, nodes, objects and its API server.

With `pytest -m cluster` all run on a real cluster. On the simulated one run those that no test without trainers shows
(tests/resources/trainings/test_disruptions.py). The trainers are real on both; the drill stands in for the two
sensors, and does what these do in a tick.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.resources.kubernetes.objects import PODS
from slipway.resources.launchers.kubernetes.workloads.jobset import JOB_SETS, JobSet
from slipway.resources.launchers.protocol import JobState
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.record import causes, fence, incidents
from tests.conftest import Marked, until
from tests.kubernetes import grounds, run
from tests.kubernetes.grounds import Ground, pods_of
from tests.kubernetes.lab import PATIENCE_SECONDS, ClusterLab, open_to_all
from tests.kubernetes.live import allow_names
from tests.resources.trainings.lab import ENDLESS, happened, numbers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
GRACE_SECONDS = 20
LONG = 3000
"""Steps of a training that runs to its end: it takes several times as long as a run takes to start."""


REAL = pytest.param("real", marks=pytest.mark.cluster)
on_a_real_cluster = pytest.mark.parametrize("ground", [REAL], indirect=True)


@pytest.fixture(params=["simulated", REAL])
def ground(request: pytest.FixtureRequest, marked: Marked, tmp_path: Path) -> Iterator[Ground]:
    test_ground = grounds.asked_for(request, tmp_path, grace_seconds=GRACE_SECONDS)
    if request.param == "real":
        allow_names(test_ground.client)
    yield test_ground
    test_ground.clear()


@pytest.fixture
def lab(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterLab]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with open_to_all():
        yield ClusterLab(ground, JobSet())


def on_two_nodes(lab: ClusterLab) -> TrainingStore:
    """A training that has committed, on two nodes if the cluster has two, else on one."""
    store = lab.start_training(numbers(ENDLESS, every=200), nodes=2)
    lab.until_committed(store, incarnation=1)
    assert len(nodes(lab, store, 1)) == 2
    return store


def nodes(lab: ClusterLab, store: TrainingStore, incarnation: int) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in lab.pods(store, incarnation)}


def goes_on(lab: ClusterLab, store: TrainingStore) -> None:
    """The next incarnation goes on from the newest checkpoint of the first, and commits; then it is stopped."""
    lab.until_restored(store, incarnation=2)
    claim = fence.newest_claim(store.folder)
    assert claim is not None and claim.token.incarnation == 2
    [restored] = [event for event in happened(store, "restored") if event["incarnation"] == 2]
    assert restored["commit"] == claim.sealed[-1]
    lab.until_committed(store, incarnation=2)
    lab.until_stopped(store)
    ended = store.exit()
    assert ended is not None and (ended.outcome, ended.incarnation) == ("stopped", 2)


def beside_the_store(lab: ClusterLab, store: TrainingStore) -> str:
    """The node of the first incarnation without the pod through which its nodes meet: the job outlives it."""
    [host] = {pod["spec"]["nodeName"] for pod in pods_of(lab.ground, f"{lab.order(store, 1)}-store")}
    [other] = nodes(lab, store, 1) - {host}
    return other


def members(store: TrainingStore, after: int) -> int:
    """How many nodes take part in the newest generation, where it is one after this one."""
    claim = fence.newest_claim(store.folder)
    return len(claim.nodes) if claim and claim.token.generation > after else 0


def goes_on_in_the_same_job(lab: ClusterLab, store: TrainingStore) -> None:
    """The first incarnation commits once more; then it is stopped."""
    count = len(store.commits())
    lab.until_committed(store, incarnation=1, count=count + 1)
    lab.until_stopped(store)
    ended = store.exit()
    assert ended is not None and (ended.outcome, ended.incarnation) == ("stopped", 1)


def first_end(store: TrainingStore) -> fence.Exit:
    ended = fence.read_exit(store.folder, 1)
    assert ended is not None
    return ended


def test_a_training_runs_to_its_end(lab: ClusterLab) -> None:
    store = lab.start_training(numbers(20), nodes=2)
    lab.until(lambda: store.exit() is not None, "its end", store)
    ended = store.exit()
    assert ended is not None and (ended.outcome, ended.step, ended.incarnation) == ("succeeded", 20, 1)


@pytest.mark.nightly
def test_a_killed_worker_pod_is_replaced_and_the_job_takes_it_back(lab: ClusterLab) -> None:
    store = on_two_nodes(lab)
    victim = lab.pods(store, 1)[1]
    lab.ground.client.delete(PODS, victim["metadata"]["name"], grace_seconds=0)
    lab.until(lambda: members(store, after=0) == 2, "a generation with the new pod", store)
    goes_on_in_the_same_job(lab, store)
    first = incidents.read(store.folder, incidents.names(store.folder)[0])
    assert first.kind in (causes.KILLED, causes.DISRUPTED) and first.nodes == (victim["spec"]["nodeName"],)


@pytest.mark.nightly
def test_an_evicted_pod_leaves_with_a_checkpoint_and_the_job_takes_its_replacement_back(lab: ClusterLab) -> None:
    store = on_two_nodes(lab)
    before = store.commits()[-1].step
    lab.ground.evict(lab.pods(store, 1)[1]["metadata"]["name"])
    lab.until(lambda: members(store, after=0) == 2, "a generation with the new pod", store)
    assert store.commits()[-1].step > before
    goes_on_in_the_same_job(lab, store)
    assert not incidents.names(store.folder) and store.read().failures_without_checkpoint == 0


@pytest.mark.nightly
def test_a_job_goes_on_without_a_node_that_loses_power_and_takes_it_back(lab: ClusterLab) -> None:
    store = on_two_nodes(lab)
    lost = beside_the_store(lab, store)
    lab.ground.power_off(lost)
    try:
        lab.until(lambda: members(store, after=0) == 1, "a generation without it", store)
        count = len(store.commits())
        lab.until_committed(store, incarnation=1, count=count + 1)
    finally:
        lab.ground.power_on(lost)
    lab.until(lambda: members(store, after=1) == 2, "a generation with its new pod", store)
    goes_on_in_the_same_job(lab, store)
    first = incidents.read(store.folder, incidents.names(store.folder)[0])
    assert first.kind in (causes.KILLED, causes.DISRUPTED) and first.nodes == (lost,)


@pytest.mark.nightly
@on_a_real_cluster
def test_a_job_goes_on_without_a_node_that_is_cut_off_whose_commits_do_not_count(lab: ClusterLab) -> None:
    store = on_two_nodes(lab)
    cut_off = beside_the_store(lab, store)
    lab.ground.partition(cut_off)
    try:
        lab.until(lambda: members(store, after=0) == 1, "a generation without it", store)
        claim = fence.newest_claim(store.folder)
        count = len(store.commits())
        lab.until_committed(store, incarnation=1, count=count + 1)
    finally:
        lab.ground.heal(cut_off)
    goes_on_in_the_same_job(lab, store)
    assert claim is not None and claim.token.incarnation == 1
    assert {commit.name for commit in store.commits() if commit.token.generation == 0} == set(claim.sealed)


@pytest.mark.nightly
@on_a_real_cluster
def test_a_jobset_deleted_by_hand_is_started_again_and_this_is_said(lab: ClusterLab) -> None:
    store = on_two_nodes(lab)
    lab.ground.client.delete(JOB_SETS, lab.order(store, 1))
    goes_on(lab, store)
    assert "deleted by hand" in first_end(store).reason


@pytest.mark.nightly
@on_a_real_cluster
def test_an_api_server_that_restarts_changes_nothing(lab: ClusterLab) -> None:
    store = on_two_nodes(lab)
    lab.ground.restart_api()
    count = len(store.commits())
    lab.until_committed(store, incarnation=1, count=count + 2)
    lab.until_stopped(store)
    ended = store.exit()
    assert ended is not None and (ended.outcome, ended.incarnation) == ("stopped", 1)


@pytest.mark.nightly
@on_a_real_cluster
def test_two_requests_for_one_training_start_one_job(lab: ClusterLab) -> None:
    store = on_two_nodes(lab)
    other = lab.cluster_control()
    for _ in range(3):
        other.advance(store, "another run")
    assert {pod["metadata"]["labels"]["slipway/incarnation"] for pod in lab.pods(store, 1)} == {"1"}
    assert len(lab.pods(store, 1)) == 2
    lab.until_stopped(store)


@pytest.mark.nightly
def test_a_run_that_is_killed_leaves_the_job_alone_and_the_next_one_adopts_it(lab: ClusterLab, tmp_path: Path) -> None:
    """The pod of a run is evicted; the training that it waited for goes on."""
    store = lab.start_training(numbers(LONG, every=200))
    order = tmp_path / "run.json"
    order.write_text(json.dumps(run.described(lab, store, tmp_path)))
    first = subprocess.Popen([sys.executable, "-m", "tests.kubernetes.run", str(order)])
    until(store.commits, "a checkpoint", PATIENCE_SECONDS)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    at_work = {pod["metadata"]["uid"] for pod in lab.pods(store, 1)}
    second = subprocess.run([sys.executable, "-m", "tests.kubernetes.run", str(order)], timeout=PATIENCE_SECONDS)
    assert second.returncode == 0
    ended = store.exit()
    assert ended is not None and (ended.outcome, ended.step, ended.incarnation) == ("succeeded", LONG, 1)
    assert {pod["metadata"]["uid"] for pod in lab.pods(store, 1)} == at_work


@pytest.mark.nightly
def test_a_stopped_training_has_saved_and_stays_stopped(lab: ClusterLab) -> None:
    store = on_two_nodes(lab)
    lab.until_stopped(store)
    ended = store.exit()
    assert ended is not None and ended.step == store.commits()[-1].step > 200
    assert lab.on_pods.poll(lab.job(store, 1)).state is JobState.STOPPED
