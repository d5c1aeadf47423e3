"""Jobs on Kubernetes in hostile weather: each fault ends in the right state, with its reason."""

import dataclasses
from collections.abc import Iterator

import pytest

from slipway.resources.errors import PlatformFault, Unavailable
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import CONFIG_MAPS, EVENTS, JOBS, PODS, KubernetesObject
from slipway.resources.launchers.kubernetes import orders
from slipway.resources.launchers.kubernetes.launcher import KubernetesLauncher
from slipway.resources.launchers.kubernetes.workloads.indexed_job import IndexedJob
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload
from slipway.resources.launchers.protocol import JobState, Status
from tests.conftest import Marked, until
from tests.kubernetes.live import Live
from tests.kubernetes.simulated.cluster import Cluster as Simulated
from tests.resources.launchers.contract import ended, job
from tests.resources.launchers.rank_records import RankRecords


@pytest.fixture
def launcher(marked: Marked, simulated: Simulated, namespace: str) -> Iterator[KubernetesLauncher]:
    """A launcher of Indexed Jobs, on a cluster that is repaired afterwards."""
    client = Client(str(simulated.kubeconfig), namespace=namespace)
    cluster = Cluster(image="slipway-trainer:test", namespace=namespace, unreachable_seconds=1, grace_seconds=1)
    yield KubernetesLauncher(client, cluster, IndexedJob())
    simulated.allow()
    Live(client, cluster).clear()


def with_cluster(launcher: KubernetesLauncher, **settings: object) -> KubernetesLauncher:
    return dataclasses.replace(launcher, cluster=dataclasses.replace(launcher.cluster, **settings))  # type: ignore[arg-type]


def reason_of(launcher: KubernetesLauncher, text: str) -> Status:
    """The status of the job once its reason contains these words."""

    def status_with_reason() -> Status | None:
        status = launcher.poll("job-1")
        return status if text in status.reason else None

    status = until(status_with_reason, f"a reason with {text!r}")
    assert status is not None
    return status


def pods(launcher: KubernetesLauncher) -> list[KubernetesObject]:
    return launcher.client.list(PODS, {})


def accepted_only(launcher: KubernetesLauncher) -> None:
    """A job whose submitter died between making the order and the workload."""
    assert launcher.client.create(CONFIG_MAPS, orders.written("job-1", job("exits", "node-0")))


def test_a_job_outlasts_an_api_server_that_is_away(
    launcher: KubernetesLauncher, rank_records: RankRecords, simulated: Simulated
):
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    simulated.stop_api()
    for ask in (launcher.poll, launcher.logs, launcher.release, lambda name: launcher.cancel(name, 0)):
        with pytest.raises(Unavailable):
            ask("job-1")
    with pytest.raises(Unavailable):
        launcher.submit(job("runs", "node-0"))
    simulated.start_api()
    launcher.submit(job("runs", "node-0"))
    assert launcher.poll("job-1").state is JobState.RUNNING
    assert len(rank_records.starts()) == 1


def test_a_submit_that_was_cut_short_is_completed_by_the_next(launcher: KubernetesLauncher):
    accepted_only(launcher)
    assert launcher.poll("job-1").state is JobState.MISSING
    launcher.submit(job("exits", "node-0"))
    assert ended(launcher).state is JobState.SUCCEEDED


def test_a_job_that_is_cancelled_before_its_workload_is_made_never_runs(launcher: KubernetesLauncher):
    accepted_only(launcher)
    launcher.cancel("job-1", grace_seconds=30)
    launcher.submit(job("exits", "node-0"))
    assert launcher.poll("job-1").state is JobState.STOPPED
    assert launcher.client.list(JOBS, {}) == pods(launcher) == []


def test_a_cancellation_that_was_cut_short_is_completed_by_the_next(
    launcher: KubernetesLauncher, rank_records: RankRecords
):
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    order_object = launcher.client.get(CONFIG_MAPS, "job-1")
    assert order_object is not None
    launcher.client.patch(
        CONFIG_MAPS, "job-1", orders.cancelled(orders.read(order_object), orders.Cancellation(at=0, grace_seconds=30))
    )
    assert launcher.poll("job-1").state is JobState.RUNNING
    launcher.cancel("job-1", grace_seconds=30)
    assert ended(launcher).state is JobState.STOPPED


def test_a_workload_deleted_by_hand_is_a_missing_job_that_can_be_started_again(
    launcher: KubernetesLauncher, rank_records: RankRecords, simulated: Simulated, namespace: str
):
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    simulated.delete(JOBS, namespace, "job-1")
    until(lambda: launcher.poll("job-1").state is JobState.MISSING, "the job to go")
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid", count=2)


def test_deleting_an_order_by_hand_removes_the_whole_job(
    launcher: KubernetesLauncher, rank_records: RankRecords, simulated: Simulated, namespace: str, marked: Marked
):
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    simulated.delete(CONFIG_MAPS, namespace, "job-1")
    assert launcher.poll("job-1").state is JobState.MISSING
    marked.until_gone()
    until(lambda: not launcher.client.list(JOBS, {}), "the workload to go")


def test_a_job_that_ended_and_was_collected_is_missing(
    launcher: KubernetesLauncher, simulated: Simulated, namespace: str
):
    launcher.submit(job("exits", "node-0"))
    ended(launcher)
    simulated.collect(namespace, "job-1")
    until(lambda: launcher.poll("job-1").state is JobState.MISSING, "the job to go")


def test_a_job_that_is_missing_in_the_mirror_is_looked_up_at_the_api_server(launcher: KubernetesLauncher):
    class Behind:
        """A mirror that is still empty."""

        def get(self, *_: object) -> None:
            return None

        def list(self, *_: object) -> list[KubernetesObject]:
            return []

    launcher.submit(job("runs", "node-0"))
    assert dataclasses.replace(launcher, mirror=Behind()).poll("job-1").state.live


@pytest.mark.parametrize(("verb", "plural"), [("create", "jobs"), ("create", "services"), ("create", "configmaps")])
def test_a_missing_permission_is_named_and_no_object_is_left(
    launcher: KubernetesLauncher, simulated: Simulated, namespace: str, verb: str, plural: str
):
    simulated.forbid(verb, plural)
    with pytest.raises(PlatformFault, match=rf"cannot {verb} .*{plural}.*{namespace}.* would grant it"):
        launcher.submit(job("exits", "node-0"))
    assert launcher.poll("job-1").state is JobState.MISSING
    assert launcher.client.list(CONFIG_MAPS, {"slipway/job": "job-1"}) == []


def test_a_launcher_whose_kind_is_not_installed_says_what_to_install(
    launcher: KubernetesLauncher, simulated: Simulated
):
    simulated.uninstall("jobset")
    try:
        with pytest.raises(
            PlatformFault, match=r"job-1: the cluster has no jobsets\.jobset\.x-k8s\.io.*install JobSet"
        ):
            dataclasses.replace(launcher, workload=JobSet()).submit(job("exits", "node-0"))
    finally:
        simulated.install("jobset")
    assert launcher.poll("job-1").state is JobState.MISSING


def test_a_queue_that_does_not_exist_is_named(launcher: KubernetesLauncher, namespace: str):
    with pytest.raises(PlatformFault, match=rf"queue nobody: found no such LocalQueue in namespace {namespace}"):
        with_cluster(launcher, queue="nobody").submit(job("exits", "node-0"))


def test_a_job_that_its_queue_holds_says_why_until_there_is_room(
    launcher: KubernetesLauncher, rank_records: RankRecords, simulated: Simulated, namespace: str
):
    launcher = with_cluster(launcher, queue="team")
    simulated.quota(namespace, "team", pods=0)
    launcher.submit(job("runs", "node-0"))
    assert reason_of(launcher, "the queue team has not admitted it: ").state is JobState.PENDING
    simulated.quota(namespace, "team", pods=1)
    rank_records.until("pid")
    assert launcher.poll("job-1").state is JobState.RUNNING


def test_a_preempted_job_is_pending_again(
    launcher: KubernetesLauncher, rank_records: RankRecords, simulated: Simulated, namespace: str
):
    launcher = with_cluster(launcher, queue="team")
    simulated.quota(namespace, "team", pods=1)
    launcher.submit(job("sleeps", "node-0"))
    rank_records.until("pid")
    simulated.quota(namespace, "team", pods=0)
    simulated.preempt(namespace, "job-1")
    until(lambda: launcher.poll("job-1").state is JobState.PENDING, "the job to be pending")


def test_a_node_selector_that_matches_nothing_is_named(launcher: KubernetesLauncher):
    with pytest.raises(PlatformFault, match=r"found no node with the labels \{'slipway/fleet': 'h300'\}"):
        with_cluster(launcher, node_selector={"slipway/fleet": "h300"}).submit(job("exits", "node-0"))


def test_an_unknown_field_of_a_patch_is_named(launcher: KubernetesLauncher):
    with pytest.raises(ValueError, match="tolerationz"):
        with_cluster(launcher, patch={"spec": {"tolerationz": []}}).submit(job("exits", "node-0"))
    assert launcher.poll("job-1").state is JobState.MISSING


def test_a_waiting_job_reports_an_image_that_cannot_be_pulled(launcher: KubernetesLauncher, simulated: Simulated):
    simulated.lose_image("slipway-trainer:lost")
    with_cluster(launcher, image="slipway-trainer:lost").submit(job("exits", "node-0"))
    assert reason_of(launcher, "slipway-trainer:lost").state is JobState.PENDING


def test_a_job_that_fits_nowhere_has_the_reason_of_the_scheduler(launcher: KubernetesLauncher):
    with_cluster(launcher, resources={"nvidia.com/gpu": "9"}).submit(job("exits", "node-0"))
    assert reason_of(launcher, "Insufficient nvidia.com/gpu").state is JobState.PENDING


def test_a_warning_about_the_workload_is_the_reason_where_there_is_no_pod(
    launcher: KubernetesLauncher, simulated: Simulated, namespace: str
):
    subject = {"kind": "Job", "name": "job-1", "namespace": namespace, "apiVersion": "batch/v1"}
    warning = {"type": "Warning", "reason": "FailedCreate", "message": "exceeded quota: team"}
    launcher.submit(dataclasses.replace(job("exits", "node-0"), kubernetes={"patch": UNSCHEDULED}))
    simulated.create(EVENTS, namespace, {"metadata": {"name": "it"}, "involvedObject": subject, **warning})
    until(lambda: pods(launcher), "its pod")
    assert reason_of(launcher, "Job job-1: FailedCreate: exceeded quota: team").state is JobState.PENDING


UNSCHEDULED = {"spec": {"schedulerName": "nobody"}}
"""A patch that makes every scheduler ignore the pods."""


def test_a_node_that_loses_power_is_reported_and_the_job_ends(
    launcher: KubernetesLauncher, rank_records: RankRecords, simulated: Simulated
):
    launcher.submit(job("runs", "node-1"))
    rank_records.until("pid")
    simulated.power_off("node-1")
    try:
        status = ended(launcher)
        assert (status.state, status.lost_nodes, status.disrupted) == (JobState.FAILED, ("node-1",), True)
        assert "node-1 was lost" in status.reason
    finally:
        simulated.power_on("node-1")


def test_a_dead_node_does_not_hold_up_a_cancelled_job(
    launcher: KubernetesLauncher, rank_records: RankRecords, simulated: Simulated
):
    launcher.submit(job("runs", "node-1"))
    rank_records.until("pid")
    simulated.power_off("node-1")
    try:
        launcher.cancel("job-1", grace_seconds=1)
        status = ended(launcher)
        assert status.state is JobState.STOPPED and status.reason.startswith("cancelled")
    finally:
        simulated.power_on("node-1")


@pytest.mark.parametrize("workload", [IndexedJob(), JobSet()], ids=["indexed-job", "jobset"])
def test_an_eviction_is_a_disruption_and_no_fault_of_the_job(
    launcher: KubernetesLauncher, rank_records: RankRecords, simulated: Simulated, namespace: str, workload: Workload
):
    launcher = dataclasses.replace(launcher, workload=workload)
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    simulated.evict(namespace, pods(launcher)[0]["metadata"]["name"])
    status = ended(launcher)
    assert (status.state, status.disrupted, status.lost_nodes) == (JobState.FAILED, True, ())


def test_a_job_that_needs_more_memory_than_its_limit_says_so(
    launcher: KubernetesLauncher, rank_records: RankRecords, simulated: Simulated, namespace: str
):
    launcher.submit(job("runs", "node-0"))
    rank_records.until("pid")
    simulated.run_out_of_memory(namespace, pods(launcher)[0]["metadata"]["name"], "trainer")
    status = ended(launcher)
    assert status.state is JobState.FAILED and "node-0 ended with exit code 137 (OOMKilled" in status.reason


def test_names_that_kubernetes_refuses_are_mapped_to_others(launcher: KubernetesLauncher):
    odd = ("Job.1", "job.1", "9-lives", "a" * 90)
    for name in odd:
        launcher.submit(job("exits", "node-0", name=name))
    assert {ended(launcher, name).state for name in odd} == {JobState.SUCCEEDED}
    assert len(launcher.client.list(JOBS, {})) == len(odd)
