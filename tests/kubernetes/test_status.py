"""The status of a job, from its order, its workload and its pods."""

import dataclasses
from typing import Any

import pytest

from slipway.resources.kubernetes.objects import KubernetesObject
from slipway.resources.launchers.kubernetes import pod_facts, status
from slipway.resources.launchers.kubernetes.orders import Cancellation, JobOrder
from slipway.resources.launchers.kubernetes.pod_facts import PodFacts
from slipway.resources.launchers.kubernetes.status import wait_by_events, wait_by_pods, wait_by_queue
from slipway.resources.launchers.kubernetes.workloads.protocol import WorkloadReading
from slipway.resources.launchers.protocol import JobState, Status
from slipway.trainer.base.processes import ExitCode
from slipway.trainer.record import causes

pytestmark = pytest.mark.pure

NOW = 1_000.0
ORDER = JobOrder("job-1", "uid-1", "7", {}, submitted_at=900.0, cancellation=None)
CANCELLED = dataclasses.replace(ORDER, cancellation=Cancellation(at=950.0, grace_seconds=30.0))
RUNNING = WorkloadReading(JobState.RUNNING, submitted_at=901.0, started_at=902.0)
FAILED = WorkloadReading(JobState.FAILED, "backoff limit reached", submitted_at=901.0, started_at=902.0, ended_at=990.0)
FIRST_POD = PodFacts("job-1-0-abcde", "node-0", started_at=910.0)
THERE = PodFacts("job-1-1-fghij", "node-1", started_at=911.0)


def of(order: JobOrder, reading: WorkloadReading | None, *pods: PodFacts, silent: tuple[str, ...] = ()) -> Status:
    return status.of(order, reading, pods, silent, NOW)


def over(pod: PodFacts, code: int, **facts: Any) -> PodFacts:
    return dataclasses.replace(pod, exit_code=code, is_over=True, **facts)


def doomed(pod: PodFacts, at: float, **facts: Any) -> PodFacts:
    return dataclasses.replace(pod, must_end_at=at, **facts)


def test_a_job_runs_as_soon_as_one_of_its_pods_does():
    waiting_pod = PodFacts("job-1-1-fghij", "")
    assert of(ORDER, RUNNING, waiting_pod).state is JobState.PENDING
    job_status = of(ORDER, RUNNING, FIRST_POD, waiting_pod)
    assert (job_status.state, job_status.nodes, job_status.submitted_at, job_status.started_at) == (
        JobState.RUNNING,
        ("node-0",),
        900.0,
        910.0,
    )


def test_a_job_that_its_queue_holds_back_is_pending_with_the_reason():
    job_status = of(ORDER, WorkloadReading(JobState.PENDING, "it is suspended"))
    assert (job_status.state, job_status.reason) == (JobState.PENDING, "it is suspended")


def test_a_job_that_succeeded_has_no_reason():
    done = WorkloadReading(JobState.SUCCEEDED, submitted_at=901.0, ended_at=990.0)
    job_status = of(ORDER, done, over(FIRST_POD, 0), over(THERE, 0))
    assert job_status == Status(
        JobState.SUCCEEDED, nodes=("node-0", "node-1"), submitted_at=900.0, started_at=910.0, ended_at=990.0
    )


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"exit_code": 3}, "node-0 ended with exit code 3"),
        ({"exit_code": 139}, "node-0 ended with exit code 139 (SIGSEGV)"),
        (
            {"exit_code": 137, "exit_reason": "OOMKilled"},
            "node-0 ended with exit code 137 (OOMKilled: it needed more memory than its limit)",
        ),
        (
            {"exit_code": 255, "exit_reason": "Unknown"},
            "node-0 ended with exit code 255 (Unknown: its node or the container runtime there was restarted)",
        ),
    ],
)
def test_a_job_that_failed_says_where_and_with_which_exit_code(facts: dict[str, Any], reason: str):
    job_status = of(ORDER, FAILED, dataclasses.replace(FIRST_POD, is_over=True, **facts), over(THERE, 0))
    assert (job_status.state, job_status.reason, job_status.lost_nodes, job_status.disrupted) == (
        JobState.FAILED,
        reason,
        (),
        False,
    )


def test_pods_that_were_ended_because_of_another_are_not_blamed():
    job_status = of(ORDER, FAILED, over(FIRST_POD, 3), over(THERE, 143, must_end_at=980.0))
    assert job_status.reason == "node-0 ended with exit code 3"


def test_a_job_whose_pods_are_gone_has_the_reason_of_its_workload():
    job_status = of(ORDER, FAILED)
    assert (job_status.reason, job_status.started_at, job_status.ended_at) == ("backoff limit reached", 902.0, 990.0)


@pytest.mark.parametrize("reason", ["EvictionByEvictionAPI", "PreemptionByScheduler", "Evicted"])
def test_an_evicted_pod_is_a_disruption_and_no_lost_node(reason: str):
    job_status = of(ORDER, FAILED, over(FIRST_POD, 143, disruption=reason, message="make room", must_end_at=980.0))
    assert job_status.reason == f"node-0: its pod was evicted: make room ({reason})"
    assert (job_status.disrupted, job_status.lost_nodes) == (True, ())


def test_the_workload_shows_a_disruption_where_the_pod_is_gone():
    job_status = of(ORDER, dataclasses.replace(FAILED, reason="a pod was evicted", disrupted=True))
    assert (job_status.reason, job_status.disrupted) == ("a pod was evicted", True)


def test_a_job_whose_evicted_pods_exited_with_0_has_not_succeeded():
    done = WorkloadReading(JobState.SUCCEEDED, ended_at=990.0)
    job_status = of(ORDER, done, over(FIRST_POD, 0, disruption="EvictionByEvictionAPI", must_end_at=980.0))
    assert (job_status.state, job_status.disrupted) == (JobState.FAILED, True)
    assert job_status.reason == "node-0: its pod was evicted: EvictionByEvictionAPI"


@pytest.mark.parametrize(("taken_away", "disruption"), [("00:01", "EvictionByEvictionAPI"), ("00:03", "")])
def test_a_pod_that_had_finished_before_its_eviction_is_no_disruption(taken_away: str, disruption: str):
    away = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    away["lastTransitionTime"] = f"2026-01-01T00:{taken_away}Z"
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:02Z"}}
    states = [{"name": "side", "state": ended}]
    assert pod_facts.of(pod(status={"conditions": [away], "containerStatuses": states})).disruption == disruption


@pytest.mark.parametrize("reason", ["DeletionByTaintManager", "DeletionByPodGC", "NodeShutdown"])
def test_a_node_that_died_under_a_job_is_lost(reason: str):
    job_status = of(ORDER, FAILED, over(FIRST_POD, 143), over(THERE, 143, disruption=reason, must_end_at=980.0))
    assert (job_status.lost_nodes, job_status.disrupted) == (("node-1",), True)
    assert f"node-1 was lost: {reason}" in job_status.reason


def test_a_pod_that_was_replaced_says_nothing_any_more_of_its_job():
    before = over(dataclasses.replace(FIRST_POD, index=0, created="2026-01-01T00:00:01Z"), 137, disruption="NodeLost")
    after = PodFacts("job-1-0-klmno", "node-2", index=0, created="2026-01-01T00:00:09Z", started_at=920.0)
    there = dataclasses.replace(THERE, index=1)
    job_status = of(ORDER, RUNNING, after, there, before)
    assert (job_status.state, job_status.nodes, job_status.lost_nodes) == (JobState.RUNNING, ("node-1", "node-2"), ())
    done = WorkloadReading(JobState.SUCCEEDED, ended_at=990.0)
    assert of(ORDER, done, before, over(after, 0), over(there, 0)).state is JobState.SUCCEEDED


def test_a_job_that_gave_up_as_its_ranks_were_killed_says_so():
    assert of(ORDER, FAILED, over(FIRST_POD, ExitCode.GIVEN_UP), over(THERE, 1)).kind == causes.KILLED
    assert of(ORDER, FAILED, over(FIRST_POD, 1)).kind == ""


def test_a_pod_on_a_silent_node_is_waited_for_until_its_grace_is_over():
    assert of(ORDER, RUNNING, doomed(THERE, NOW + 1), silent=("node-1",)).state is JobState.RUNNING
    job_status = of(ORDER, RUNNING, doomed(THERE, NOW - 1), silent=("node-1",))
    assert (job_status.state, job_status.lost_nodes, job_status.disrupted) == (JobState.FAILED, ("node-1",), True)
    assert job_status.reason == "node-1 was lost: it does not answer; processes may still run there"


def test_a_pod_that_is_overdue_on_a_node_that_answers_is_waited_for():
    assert of(ORDER, RUNNING, doomed(THERE, NOW - 100)).state is JobState.RUNNING


def test_a_running_job_reports_a_lost_node_while_other_pods_run():
    job_status = of(ORDER, RUNNING, FIRST_POD, doomed(THERE, NOW - 1), silent=("node-1",))
    assert (job_status.state, job_status.lost_nodes) == (JobState.RUNNING, ("node-1",))


def test_a_job_has_not_ended_while_a_pod_runs_that_its_workload_did_not_wait_for():
    job_status = of(ORDER, FAILED, over(FIRST_POD, 3), doomed(THERE, NOW + 60))
    assert (job_status.state, job_status.ended_at) == (JobState.RUNNING, None)


def test_a_workload_that_waits_for_a_silent_node_shows_how_it_will_end():
    ending = dataclasses.replace(RUNNING, ending=JobState.SUCCEEDED)
    assert of(ORDER, ending, over(FIRST_POD, 0), doomed(THERE, NOW - 1), silent=("node-1",)).state is JobState.SUCCEEDED


def test_an_order_without_a_workload_is_a_missing_job_once_its_pods_have_ended():
    assert of(ORDER, None, FIRST_POD).state is JobState.RUNNING
    assert of(ORDER, None, over(FIRST_POD, 143)) == Status(JobState.MISSING)


def test_a_cancelled_job_runs_until_its_workload_and_its_pods_are_gone():
    for job_status in (of(CANCELLED, RUNNING, FIRST_POD), of(CANCELLED, None, doomed(FIRST_POD, 980.0))):
        assert (job_status.state, job_status.reason) == (JobState.RUNNING, "cancelled, and ending on node-0")
    assert of(CANCELLED, FAILED).state is JobState.PENDING
    job_status = of(CANCELLED, None)
    assert job_status == Status(JobState.STOPPED, "cancelled", submitted_at=900.0, ended_at=950.0)


def test_a_silent_node_does_not_hold_up_a_cancelled_job():
    job_status = of(CANCELLED, None, doomed(THERE, 980.0), silent=("node-1",))
    assert (job_status.state, job_status.lost_nodes) == (JobState.STOPPED, ("node-1",))
    assert job_status.reason == "cancelled; node-1 was lost: it does not answer; processes may still run there"


def pod(**parts: Any) -> KubernetesObject:
    return {
        "metadata": {"name": "job-1-0", **parts.get("metadata", {})},
        "spec": {"nodeName": "node-0", "containers": [{"name": "side"}, {"name": "trainer"}]},
        "status": parts.get("status", {}),
    }


def test_the_container_of_the_annotation_decides():
    states = [
        {"name": "side", "state": {"terminated": {"exitCode": 1}}},
        {"name": "trainer", "state": {"running": {"startedAt": "1970-01-01T00:15:10Z"}}},
    ]
    annotated = {"annotations": {"kubectl.kubernetes.io/default-container": "trainer"}}
    facts = pod_facts.of(pod(metadata=annotated, status={"containerStatuses": states}))
    assert (facts.started_at, facts.exit_code) == (910.0, None)


def test_a_pods_status_says_why_it_waits():
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    no_place = pod_facts.of(pod(status={"conditions": [scheduled]}))
    image = {"waiting": {"reason": "ErrImageNeverPull", "message": "image trainer:1 is not present"}}
    no_image = pod_facts.of(pod(status={"containerStatuses": [{"name": "trainer", "state": image}]}))
    creating = {"waiting": {"reason": "ContainerCreating"}}
    on_its_way = pod_facts.of(pod(status={"containerStatuses": [{"name": "trainer", "state": creating}]}))
    assert on_its_way.waits_for == ""
    assert wait_by_pods([no_place, no_place, no_image, on_its_way]) == (
        "2 pods: Unschedulable: 0/2 nodes; 1 pod: ErrImageNeverPull: image trainer:1 is not present"
    )


def test_a_pod_that_the_kubelet_ended_shows_the_kubelets_reason():
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "low"}
    for reason, lost in (("NodeShutdown", True), ("Evicted", False)):
        facts = pod_facts.of(pod(status={"phase": "Failed", "reason": reason, "conditions": [condition]}))
        assert facts.disruption == reason
        assert ("was lost" in facts.explanation) is lost


def test_the_reason_quotes_the_queue():
    condition = {"type": "QuotaReserved", "status": "False", "message": "insufficient unused quota for cpu"}
    admission = {"spec": {"queueName": "team"}, "status": {"conditions": [condition]}}
    assert wait_by_queue([admission]) == "the queue team has not admitted it: insufficient unused quota for cpu"


def event(kind: str, name: str, at: str, message: str, type: str = "Warning") -> KubernetesObject:
    subject = {"kind": kind, "name": name}
    return {
        "type": type,
        "involvedObject": subject,
        "lastTimestamp": at,
        "reason": "FailedCreate",
        "message": message,
        "metadata": {},
    }


def test_the_reason_is_the_latest_warning_about_an_object_of_the_job():
    events = [
        event("Job", "job-1-node-0", "2026-01-01T00:00:02Z", "exceeded quota"),
        event("Pod", "job-1-node-0-0-abcde", "2026-01-01T00:00:01Z", "earlier"),
        event("Pod", "job-10", "2026-01-01T00:00:03Z", "of another job"),
        event("Job", "job-1-node-0", "2026-01-01T00:00:04Z", "created pod", type="Normal"),
    ]
    assert wait_by_events(events, "job-1") == "Job job-1-node-0: FailedCreate: exceeded quota"
    assert wait_by_events(events, "job-2") == ""
