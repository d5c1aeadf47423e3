"""The kinds of workload: the objects that each makes of a job, and its readings of statuses from a real cluster."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from signal import SIGTERM
from typing import Any

import pytest

from slipway.resources.kubernetes.objects import JOB, KubernetesObject
from slipway.resources.launchers.kubernetes.pod_facts import LOST
from slipway.resources.launchers.kubernetes.workloads import KINDS
from slipway.resources.launchers.kubernetes.workloads.protocol import WorkloadReading
from slipway.resources.launchers.protocol import Job, JobState
from slipway.trainer.base.processes import ExitCode
from slipway.trainer.elastic.generations import REPLACED
from tests.kubernetes.jobs import LARGE, LONE, RICH, SMALL

pytestmark = pytest.mark.pure

QUEUED = replace(LARGE, queue="team-a")
SUBMITTED = datetime(2026, 11, 21, 14, 20, 10, tzinfo=UTC).timestamp()


def objects(kind: str, job: Any = RICH, cluster: Any = LARGE) -> dict[str, KubernetesObject]:
    """The objects that a kind makes, by their own kind."""
    return {document["kind"]: document for document in KINDS[kind].objects("job-1", job, cluster)}


def job_set_spec(kind: str, **more: Any) -> KubernetesObject:
    job_objects = objects(kind, **more)
    return dict(
        job_objects["JobSet"]["spec"]
        if kind == "jobset"
        else job_objects["TrainingRuntime"]["spec"]["template"]["spec"]
    )


def job_spec(kind: str, **more: Any) -> KubernetesObject:
    """The spec of the Job that runs the pods."""
    if kind == "job":
        return dict(objects(kind, **more)["Job"]["spec"])
    return dict(job_set_spec(kind, **more)["replicatedJobs"][0]["template"]["spec"])


@pytest.mark.parametrize("kind", KINDS)
def test_pods_meet_at_a_store_that_no_pod_of_the_job_hosts(kind: str):
    job_objects = KINDS[kind].objects("job-1", RICH, LARGE)
    assert re.findall(r"--rdzv-endpoint=[^']*", str(job_objects)) == ["--rdzv-endpoint=job-1-store:29500"]
    service, pod = job_objects[:2]
    assert (service["kind"], pod["kind"]) == ("Service", "Pod")
    assert service["metadata"]["name"] == pod["metadata"]["name"] == "job-1-store"
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["metadata"]["labels"][JOB] != "job-1", "it counts as no pod of the job"


@pytest.mark.parametrize("kind", KINDS)
def test_a_lone_rank_has_no_store(kind: str):
    assert "store" not in str([document["metadata"]["name"] for document in KINDS[kind].objects("job-1", LONE, SMALL)])


def test_a_store_takes_no_gpu_and_prefers_nodes_outside_the_fleet():
    labelled = replace(LARGE, node_selector={"slipway/fleet": "h200"})
    [pod] = [document for document in KINDS["jobset"].objects("job-1", RICH, labelled) if document["kind"] == "Pod"]
    assert "nvidia.com/gpu" not in str(pod["spec"]["containers"])
    [preferred] = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    [term] = preferred["preference"]["matchExpressions"]
    assert term == {"key": "slipway/fleet", "operator": "NotIn", "values": ["h200"]}
    named = replace(labelled, store_node_selector={"pool": "small"})
    [pod] = [document for document in KINDS["jobset"].objects("job-1", RICH, named) if document["kind"] == "Pod"]
    assert pod["spec"]["nodeSelector"] == {"pool": "small"} and "affinity" not in pod["spec"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_main_object_comes_last_and_is_called_what_the_job_is(kind: str):
    main = KINDS[kind].objects("job-1", LONE, SMALL)[-1]
    resource = KINDS[kind].resource
    assert (main["apiVersion"], main["kind"], main["metadata"]["name"]) == (
        resource.api_version,
        resource.kind,
        "job-1",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_is_said_and_the_workload_suspended_until_it_admits_it(kind: str):
    main, free = (KINDS[kind].objects("job-1", RICH, cluster)[-1] for cluster in (QUEUED, LARGE))
    assert main["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert main["spec"].get("runPolicy", main["spec"])["suspend"] is True
    assert "suspend" not in str(free) and "kueue" not in str(free)


@pytest.mark.parametrize("kind", KINDS)
def test_volcano_starts_no_pod_without_the_least_number_of_them(kind: str):
    group = objects(kind, cluster=replace(LARGE, scheduler="volcano"))["PodGroup"]
    assert group["spec"]["minMember"] == (4 if kind == "pytorchjob" else 3)


@pytest.mark.parametrize("kind", ["jobset", "job", "trainjob"])
def test_a_pod_that_dies_under_supervisors_is_replaced_and_one_that_ends_by_itself_ends_the_job(kind: str):
    spec = job_spec(kind)
    disruption, died, ended = spec["podFailurePolicy"]["rules"]
    assert disruption == {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    assert died["action"] == "Count" and {137, 139} <= set(died["onExitCodes"]["values"])
    assert 128 + SIGTERM in died["onExitCodes"]["values"], "its node leaves, and the others go on"
    assert LOST in died["onExitCodes"]["values"], "its node was started anew, and says no more of its pods"
    assert not {0, 1, 2, 3, ExitCode.GIVEN_UP} & set(died["onExitCodes"]["values"])
    assert (ended["action"], ended["onExitCodes"]["operator"]) == ("FailJob", "NotIn")
    assert spec["backoffLimit"] > 0 and spec["template"]["spec"]["restartPolicy"] == "Never"
    assert REPLACED in str(spec["template"])


@pytest.mark.parametrize("kind", ["jobset", "job", "trainjob"])
@pytest.mark.parametrize("job", [LONE, replace(RICH, command=("python", "train.py"))], ids=["one pod", "a script"])
def test_where_nobody_can_take_a_pod_back_none_is_replaced_and_a_disruption_is_distinguished_from_an_error(
    kind: str, job: Job
):
    spec = job_spec(kind, job=job)
    disruption, error = spec["podFailurePolicy"]["rules"]
    assert spec["backoffLimit"] == 0 and spec["template"]["spec"]["restartPolicy"] == "Never"
    assert disruption["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert error["onExitCodes"] == {"containerName": "trainer", "operator": "NotIn", "values": [0]}
    assert [disruption["action"], error["action"]] == ["FailJob", "FailJob"]
    assert REPLACED not in str(spec)


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_a_job_set_passes_on_that_it_was_a_disruption(kind: str):
    policy = job_set_spec(kind)["failurePolicy"]
    [rule] = policy["rules"]
    assert policy["maxRestarts"] == 0 and rule["action"] == "FailJobSet"
    message = "Pod slipway/evict-0-frt7b has condition DisruptionTarget matching FailJob rule at index 0"
    assert re.search(rule["onJobFailureMessagePatterns"][0], message)


@pytest.mark.parametrize("kind", ["jobset", "job", "trainjob"])
def test_an_elastic_job_has_succeeded_when_those_that_had_a_place_have(kind: str):
    assert job_spec(kind)["successPolicy"] == {"rules": [{"succeededCount": 3}]}
    assert "successPolicy" not in job_spec(kind, job=replace(RICH, least=4))


def test_kueue_may_admit_an_indexed_job_with_fewer_pods():
    assert "kueue.x-k8s.io/job-min-parallelism" not in str(objects("job"))
    annotations = objects("job", cluster=QUEUED)["Job"]["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/job-min-parallelism"] == "3"
    assert annotations["kueue.x-k8s.io/job-completions-equal-parallelism"] == "true"


def test_an_indexed_job_gets_names_for_its_pods_before_they_are_ready():
    job_objects = objects("job")
    assert job_objects["Service"]["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"slipway/job": "job-1"},
    }
    assert job_objects["Job"]["spec"]["template"]["spec"]["subdomain"] == job_objects["Service"]["metadata"]["name"]


def test_a_train_job_refers_to_its_own_runtime_and_overrides_nothing_of_it():
    job_objects = objects("trainjob")
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "job-1"}
    assert job_objects["TrainJob"]["spec"] == {"runtimeRef": reference}
    assert job_objects["TrainingRuntime"]["metadata"]["name"] == "job-1"


def test_a_pytorch_job_has_only_workers_which_read_their_index_from_a_label():
    spec = objects("pytorchjob")["PyTorchJob"]["spec"]
    [worker] = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert list(spec["pytorchReplicaSpecs"]) == ["Worker"] and worker["name"] == KINDS["pytorchjob"].container
    field_reference = {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}
    assert {"name": "JOB_COMPLETION_INDEX", "valueFrom": field_reference} in worker["env"]
    assert "--nnodes=4" in worker["command"]


def read(kind: str, status: dict[str, Any], **spec: Any) -> WorkloadReading:
    metadata = {"name": "job-1", "creationTimestamp": "2026-11-21T14:20:10Z", "labels": {}}
    return KINDS[kind].read(
        {"metadata": metadata, "spec": {"parallelism": 2, "runPolicy": {}, **spec}, "status": status}
    )


def condition(kind: str, reason: str, message: str = "", status: str = "True") -> dict[str, str]:
    at = "2026-11-21T14:20:55Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


EXIT = "Container trainer for pod slipway/job-1-0-fjrgs failed with exit code 42 matching FailJob rule at index 1"
EVICTED = "Pod slipway/job-1-0-frt7b has condition DisruptionTarget matching FailJob rule at index 0"
JOBS_FAILED = "jobset failed due to reaching max number of restarts (first failed job: job-1-node-0)"
JOBS_DISRUPTED = "applying FailJobSet failure policy action (first failed job: job-1-node-0)"
BACKOFF = "Job job-1 has failed because it has reached the specified backoff limit"
ACTIVE, READY = ({"name": "node", "active": 1, "ready": ready, "succeeded": 0, "failed": 0} for ready in (0, 1))
WAS_RUNNING = condition("Running", "PyTorchJobRunning", "PyTorchJob job-1 is running.", status="False")


@pytest.mark.parametrize(
    ("kind", "job_condition"),
    [
        ("jobset", condition("Completed", "AllJobsCompleted", "jobset completed successfully")),
        ("job", condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods")),
        ("trainjob", condition("Complete", "AllJobsCompleted", "jobset completed successfully")),
        (
            "pytorchjob",
            condition("Succeeded", "PyTorchJobSucceeded", "PyTorchJob slipway/job-1 successfully completed."),
        ),
    ],
)
def test_success_has_no_reason_and_a_time(kind: str, job_condition: dict[str, str]):
    assert read(kind, {"conditions": [WAS_RUNNING, job_condition]}) == WorkloadReading(
        JobState.SUCCEEDED, submitted_at=SUBMITTED, ended_at=SUBMITTED + 45
    )


@pytest.mark.parametrize(
    ("kind", "job_condition", "reason", "disrupted"),
    [
        ("job", condition("Failed", "PodFailurePolicy", EXIT), f"{EXIT} (PodFailurePolicy)", False),
        ("job", condition("Failed", "PodFailurePolicy", EVICTED), f"disrupted: {EVICTED} (PodFailurePolicy)", True),
        (
            "jobset",
            condition("Failed", "ReachedMaxRestarts", JOBS_FAILED),
            f"{JOBS_FAILED} (ReachedMaxRestarts)",
            False,
        ),
        (
            "jobset",
            condition("Failed", "FailJobSetFailurePolicyAction", JOBS_DISRUPTED),
            f"disrupted: {JOBS_DISRUPTED} (FailJobSetFailurePolicyAction)",
            True,
        ),
        (
            "trainjob",
            condition("Failed", "FailJobSetFailurePolicyAction"),
            "disrupted: FailJobSetFailurePolicyAction",
            True,
        ),
        ("pytorchjob", condition("Failed", "PyTorchJobFailed", BACKOFF), f"{BACKOFF} (PyTorchJobFailed)", False),
    ],
)
def test_a_failure_says_what_the_controller_says_and_whose_it_was(
    kind: str, job_condition: dict[str, str], reason: str, disrupted: bool
):
    failed = read(kind, {"conditions": [WAS_RUNNING, job_condition]})
    assert failed == WorkloadReading(
        JobState.FAILED, reason, disrupted, submitted_at=SUBMITTED, ended_at=SUBMITTED + 45
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_workload_that_no_controller_has_seen_is_pending(kind: str):
    assert read(kind, {}) == WorkloadReading(JobState.PENDING, "it has no pods yet", submitted_at=SUBMITTED)


@pytest.mark.parametrize("kind", KINDS)
def test_a_suspended_workload_is_pending_whatever_ran_before_and_says_which_queue(kind: str):
    main = KINDS[kind].objects("job-1", RICH, QUEUED)[-1]
    main["metadata"]["creationTimestamp"] = "2026-11-21T14:20:10Z"
    main["status"] = {"conditions": [WAS_RUNNING, condition("Suspended", "JobSuspended")]}
    waiting = KINDS[kind].read(main)
    assert (waiting.state, waiting.reason) == (JobState.PENDING, "suspended: queue team-a has not admitted it")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("jobset", {"replicatedJobsStatus": [READY], "restarts": 0}),
        ("job", {"active": 2, "ready": 2, "startTime": "2026-11-21T14:20:15Z"}),
        ("trainjob", {"jobsStatus": [READY]}),
        (
            "pytorchjob",
            {"conditions": [condition("Running", "PyTorchJobRunning")], "startTime": "2026-11-21T14:20:28Z"},
        ),
    ],
)
def test_a_workload_whose_pods_are_ready_runs(kind: str, status: dict[str, Any]):
    running = read(kind, status)
    assert (running.state, running.reason, running.ended_at) == (JobState.RUNNING, "", None)


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("jobset", {"replicatedJobsStatus": [ACTIVE]}, "not all of its pods are ready"),
        ("job", {"active": 2, "ready": 0, "startTime": "2026-11-21T14:20:15Z"}, "none of its 2 pods is ready"),
        ("trainjob", {"jobsStatus": [ACTIVE]}, "not all of its pods are ready"),
        ("pytorchjob", {"replicaStatuses": {"Worker": {"selector": "a=b"}}}, "none of its pods runs"),
    ],
)
def test_a_workload_whose_pods_wait_is_pending_and_leaves_the_reason_to_them(
    kind: str, status: dict[str, Any], reason: str
):
    assert read(kind, status) == WorkloadReading(JobState.PENDING, reason, submitted_at=SUBMITTED)


def test_a_job_with_some_pods_ready_runs_and_says_how_many():
    running = read("job", {"active": 2, "ready": 1, "startTime": "2026-11-21T14:20:15Z"})
    assert (running.state, running.reason) == (JobState.RUNNING, "1 of 2 pods are ready")
    assert running.started_at == SUBMITTED + 5


def test_a_pod_that_has_succeeded_counts_as_one_that_was_ready():
    assert read("job", {"active": 1, "ready": 1, "succeeded": 1}).reason == ""


@pytest.mark.parametrize(
    ("job_condition", "ending", "disrupted"),
    [
        (condition("FailureTarget", "PodFailurePolicy", EXIT), JobState.FAILED, False),
        (condition("FailureTarget", "PodFailurePolicy", EVICTED), JobState.FAILED, True),
        (condition("SuccessCriteriaMet", "SuccessPolicy"), JobState.SUCCEEDED, False),
    ],
)
def test_a_job_that_waits_for_its_last_pods_says_how_it_will_end(
    job_condition: dict[str, str], ending: JobState, disrupted: bool
):
    waiting = read("job", {"conditions": [job_condition], "terminating": 1})
    assert (waiting.state, waiting.ending, waiting.disrupted) == (JobState.RUNNING, ending, disrupted)
    assert waiting.reason.startswith("is ending: ")


def test_a_failed_job_stays_failed_while_it_is_suspended():
    status = {"conditions": [condition("Suspended", "JobSuspended"), condition("Failed", "PodFailurePolicy", EXIT)]}
    assert read("job", status, suspend=True).state is JobState.FAILED
