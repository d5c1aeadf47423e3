"""Disruptions: nodes vanish, pods are evicted, jobs pre-empted or deleted, and the training goes on elsewhere.

On a simulated cluster, over HTTP; what runs in the pods are processes without a model.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.resources import receipts
from slipway.resources.errors import Unavailable
from slipway.resources.fleet.kubernetes.fleet import KubernetesFleet
from slipway.resources.fleet.protocol import Node
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster as Settings
from slipway.resources.kubernetes.objects import JOBS, NODES, KubernetesObject
from slipway.resources.launchers.kubernetes import names
from slipway.resources.launchers.kubernetes.launcher import KubernetesLauncher
from slipway.resources.launchers.kubernetes.workloads.indexed_job import IndexedJob
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload
from slipway.resources.launchers.protocol import JobState
from slipway.resources.trainings.control import MISSING_GRACE_SECONDS, TrainingControl
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.faults import TrainingFault
from slipway.resources.trainings.job import Paths, job_name, keep_code
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
from tests.conftest import Marked, until
from tests.kubernetes.simulated.cluster import Cluster
from tests.kubernetes.simulated.kinds import NAMESPACES, SERVICE_ACCOUNTS
from tests.resources.trainings.lab import BY, advance

NAMESPACE = "slipway"
PROGRAM = Path(__file__).parent / "programs" / "trains_for_ever.py"
SNAPSHOT = "a" * 64
NODES_OF_THE_FLEET = ("node-0", "node-1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("kubernetes"), NODES_OF_THE_FLEET) as cluster:
        cluster.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        cluster.create(SERVICE_ACCOUNTS, NAMESPACE, {"metadata": {"name": "slipway-trainer"}})
        yield cluster


class Lab:
    """Trainings of one rank on a cluster of two nodes, under the control of the Kubernetes launcher and fleet."""

    def __init__(self, cluster: Cluster, durable: Path, workload: Workload) -> None:
        self.cluster, self.durable, self.workload = cluster, durable, workload
        self.now = time.time
        client = Client(str(cluster.kubeconfig), namespace=NAMESPACE)
        settings = Settings(image="trainer", namespace=NAMESPACE)
        self.fleet = KubernetesFleet(client, settings)
        launcher = KubernetesLauncher(client, settings, workload)
        paths = Paths(durable, "/nvme")
        self.control = TrainingControl(launcher, self.fleet, paths, clock=lambda: self.now())

    def start_training(self, **policy_fields: object) -> TrainingStore:
        code = keep_code(PROGRAM, self.durable)
        numbers = {"script": {"command": ["python", PROGRAM.name], "code": code}, "parameters": {}}
        chosen = {"no_progress_seconds": 600, "failures_without_checkpoint": 1, **policy_fields}
        # The cluster outlives the test: each has a training, and so jobs, of its own.
        specification = Specification("tiny", numbers, SNAPSHOT, "", cause=self.durable.name)
        store = Trainings(self.durable / "trainings").propose(specification, RunPolicy(1, 1, 1, **chosen))  # type: ignore[arg-type]
        store.want("run", BY, "the test wants it")
        return store

    def running(self) -> TrainingStore:
        """A training whose trainer has been heard of."""
        store = self.start_training()
        advance(self.control, store, Action.SUBMIT)
        until(lambda: store.read().begun, "the trainer")
        return store

    def node(self, store: TrainingStore) -> str:
        """Where it runs."""
        [node] = self.control.status(store.read()).nodes
        return node

    def evict(self) -> None:
        """All pods, as a drain does."""
        for pod in self.cluster.pods(NAMESPACE):
            self.cluster.evict(NAMESPACE, pod["metadata"]["name"])

    def objects_of(self, store: TrainingStore) -> str:
        """The name of the first incarnation's objects."""
        return names.object_name(job_of(store, 1))

    def fault(self, store: TrainingStore) -> TrainingFault:
        observed_fault = until(lambda: self.control.fault(store.read(), self.fleet.nodes()), "the fault to be seen")
        assert observed_fault is not None
        return observed_fault

    def superseded(self, store: TrainingStore) -> TrainingFault:
        """Give up what is at fault, and see the next incarnation at work."""
        fault = self.fault(store)
        assert self.control.supersede(store, store.read(), fault, BY)
        advance(self.control, store, Action.SUBMIT)
        until(lambda: store.read().begun, "the next trainer")
        return fault


@pytest.fixture(params=[IndexedJob()])
def lab(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path, marked: Marked) -> Iterator[Lab]:
    lab = Lab(cluster, tmp_path, request.param)
    yield lab
    for node in NODES_OF_THE_FLEET:
        cluster.power_on(node)
    known = Trainings(tmp_path / "trainings")
    for store in known.stores():
        store.want("stop", BY, "the test is over")
        advance(lab.control, store)


def other(node: str) -> str:
    [other] = set(NODES_OF_THE_FLEET) - {node}
    return other


def job_of(store: TrainingStore, incarnation: int) -> str:
    return job_name(store.id, incarnation)


def test_a_job_is_offered_all_ready_nodes_and_says_whose_it_is(lab: Lab):
    receipts.note(lab.durable, SNAPSHOT, "node-1", bytes=1)
    store = lab.start_training()
    lab.control.advance(store, BY)
    assert lab.control.advance(store, BY, run="run-7") is Action.SUBMIT
    claim = store.newest_claim()
    assert claim is not None and claim.nodes == NODES_OF_THE_FLEET
    job = lab.cluster.get(JOBS, NAMESPACE, lab.objects_of(store))
    assert job is not None
    [preferred] = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert job["spec"]["parallelism"] == 1 and "node-1" in str(preferred) and "node-0" not in str(preferred)
    assert job["metadata"]["labels"]["slipway/run"] == "run-7"


def test_a_training_on_a_node_that_was_powered_off_goes_on_on_the_other(lab: Lab):
    store = lab.running()
    off = lab.node(store)
    lab.cluster.power_off(off)
    fault = lab.superseded(store)
    assert fault.cause.startswith(f"node {off} is lost: Ready is Unknown") and fault.nodes == (off,)
    assert lab.node(store) == other(off)
    [ended] = store.read().failures
    assert (ended.nodes, ended.disrupted, store.read().failures_without_checkpoint) == ((off,), True, 0)
    first = lab.control.launcher.poll(job_of(store, 1))
    assert first.state is JobState.STOPPED and f"{off} was lost" in first.reason


def test_a_training_on_a_node_that_was_cut_off_goes_on_while_the_old_one_runs(lab: Lab, marked: Marked):
    store = lab.running()
    away = lab.node(store)
    lab.cluster.partition(away)
    lab.superseded(store)
    assert len(marked.running("slipway.trainer.node.process")) == 2, "nothing but the fence keeps the old one from harm"
    claim = store.newest_claim()
    assert claim is not None and claim.token.incarnation == 2
    lab.cluster.heal(away)
    until(
        lambda: len(marked.running("slipway.trainer.node.process")) == 1,
        "the old one to be ended when its node is back",
    )
    assert lab.control.status(store.read()).state is JobState.RUNNING


def test_an_evicted_training_is_started_again_and_that_is_not_held_against_it(lab: Lab):
    store = lab.running()
    lab.evict()
    actions = advance(lab.control, store, Action.SUBMIT)
    assert [action for action in actions if action is not Action.WAIT] == [Action.RECORD, Action.CLAIM, Action.SUBMIT]
    [ended] = store.read().failures
    assert "DisruptionTarget" in ended.reason and ended.disrupted and store.read().failures_without_checkpoint == 0
    until(lambda: store.read().begun, "the next trainer")


@pytest.mark.parametrize("lab", [IndexedJob(), JobSet()], indirect=True, ids=["job", "jobset"])
def test_a_pre_empted_training_is_claimed_anew_and_that_is_not_held_against_it(lab: Lab):
    store = lab.running()
    lab.cluster.change(lab.workload.resource, NAMESPACE, lab.objects_of(store), _suspend)
    fault = until(lambda: lab.control.fault(store.read(), lab.fleet.nodes()), "the pre-emption to be seen")
    assert fault is not None and lab.control.supersede(store, store.read(), fault, BY)
    advance(lab.control, store, Action.SUBMIT)
    [ended] = store.read().failures
    assert ended.disrupted and store.read().failures_without_checkpoint == 0
    claim = store.newest_claim()
    assert claim is not None and claim.token.incarnation == 2 and claim.cause.startswith("pre-empted: ")


def _suspend(workload: KubernetesObject) -> None:
    workload["spec"]["suspend"] = True


def test_a_job_deleted_by_hand_is_started_again_and_the_event_log_has_the_reason(lab: Lab):
    store = lab.running()
    lab.cluster.delete(JOBS, NAMESPACE, lab.objects_of(store))
    until(lambda: lab.control.status(store.read()).state is JobState.MISSING, "the job to be gone")
    assert lab.control.fault(store.read(), lab.fleet.nodes()) is None
    assert lab.control.advance(store, BY) is Action.WAIT
    lab.now = lambda: time.time() + MISSING_GRACE_SECONDS
    assert lab.control.advance(store, BY) is Action.RECORD
    [ended] = store.read().failures
    assert ended.reason == "the job object was deleted by hand; it is started again"
    store.want("stop", BY, "it counts as a failure of its own")


def test_while_the_api_server_is_away_nothing_happens(lab: Lab):
    store = lab.running()
    written = {path for path in store.folder.rglob("*") if path.is_file()}
    lab.cluster.stop_api()
    for ask in (lambda: lab.control.advance(store, BY), lab.fleet.nodes, lambda: lab.control.fault(store.read(), [])):
        with pytest.raises(Unavailable):
            ask()
    lab.cluster.start_api()
    assert {path for path in store.folder.rglob("*") if path.is_file()} == written
    assert lab.control.advance(store, BY) is Action.WAIT
    assert lab.control.fault(store.read(), lab.fleet.nodes()) is None


def test_a_cordoned_node_lets_its_training_finish_and_gets_no_new_one(lab: Lab):
    store = lab.running()
    cordoned = lab.node(store)
    lab.cluster.change(NODES, "", cordoned, lambda node: node["spec"].update(unschedulable=True))
    try:
        assert lab.control.fault(store.read(), lab.fleet.nodes()) is None
        assert lab.control.supersede(store, store.read(), TrainingFault("a test", (cordoned,)), BY)
        claim = store.newest_claim()
        assert claim is not None and claim.nodes == (other(cordoned),)
    finally:
        lab.cluster.change(NODES, "", cordoned, _uncordoned)


def _uncordoned(node: KubernetesObject) -> None:
    del node["spec"]["unschedulable"]


def test_a_training_that_fits_nowhere_is_reported_after_a_while_and_not_given_up(lab: Lab):
    store = lab.start_training(kubernetes={"resources": {"nvidia.com/gpu": "9"}})
    advance(lab.control, store, Action.SUBMIT)
    until(lambda: "Insufficient nvidia.com/gpu" in lab.control.status(store.read()).reason, "the scheduler to say so")
    assert lab.control.waiting(store.read()) and lab.control.overdue(store.read()) is None
    lab.now = lambda: time.time() + 601
    waiting = lab.control.overdue(store.read())
    assert waiting is not None and "Insufficient nvidia.com/gpu" in waiting.reason
    assert waiting.incarnation == 1 and waiting.seconds > 600
    assert lab.control.advance(store, BY) is Action.WAIT and store.read().should_run


def test_a_job_offered_to_nodes_that_have_gone_since_is_offered_to_those_that_came(lab: Lab):
    store = lab.start_training(kubernetes={"resources": {"nvidia.com/gpu": "9"}})
    advance(lab.control, store, Action.SUBMIT)
    fault = lab.control.fault(store.read(), [Node("node-2", ready=True)])
    assert fault is not None and fault.cause == "found 0 ready nodes among those that it may use, expected 1 or more"
    assert fault.disrupted
