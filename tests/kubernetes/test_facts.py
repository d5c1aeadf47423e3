"""Slipway's assumptions about Kubernetes, tested with the official client.

Each test holds for the simulated cluster, and with ``-m cluster`` for a real one: that is what the simulation is
measured by. They were seen to hold on Kubernetes 1.36 with JobSet 0.12, Trainer 2.3 and training-operator 1.9.
"""

import os
import uuid
from collections.abc import Iterator

import pytest
from kubernetes import client, config, watch

from tests.conftest import until
from tests.kubernetes.cluster_namespace import (
    ENDS,
    ClusterNamespace,
    Object,
    condition,
    condition_of,
    holding,
    holds,
    holds_not,
    refusal,
)
from tests.kubernetes.simulated.cluster import Cluster


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.cluster)])
def cluster_namespace(request: pytest.FixtureRequest) -> Iterator[ClusterNamespace]:
    if request.param == "simulated":
        cluster: Cluster = request.getfixturevalue("simulated")
        request.getfixturevalue("marked")
        api = config.new_client_from_config(str(cluster.kubeconfig))
        image = "any"
    elif not {"KUBECONFIG", "SLIPWAY_TEST_IMAGE"} <= set(os.environ):
        pytest.skip("no cluster to test on: KUBECONFIG and SLIPWAY_TEST_IMAGE are not both set")
    else:
        api, image = config.new_client_from_config(), os.environ["SLIPWAY_TEST_IMAGE"]
    name = f"facts-{uuid.uuid4().hex[:8]}"
    core = client.CoreV1Api(api)
    core.create_namespace({"metadata": {"name": name}})
    until(lambda: core.list_namespaced_service_account(name).items, "the default service account")
    try:
        yield ClusterNamespace(api, name, image)
    finally:
        core.delete_collection_namespaced_pod(name, grace_period_seconds=0)  # no pod named: one may go meanwhile
        core.delete_namespace(name)
        api.close()


class TestObjects:
    def test_a_name_is_taken_once(self, cluster_namespace: ClusterNamespace):
        cluster_namespace.config_map("one")
        refused = refusal(cluster_namespace.config_map, "one")
        assert (refused["code"], refused["reason"]) == (409, "AlreadyExists")
        assert refused["message"] == 'configmaps "one" already exists'

    def test_an_update_of_a_changed_object_is_refused(self, cluster_namespace: ClusterNamespace):
        first = cluster_namespace.config_map("one")
        replace = cluster_namespace.core.replace_namespaced_config_map
        replace("one", cluster_namespace.namespace, {**first, "data": {"key": "newer"}})
        refused = refusal(replace, "one", cluster_namespace.namespace, {**first, "data": {"key": "late"}})
        assert (refused["code"], refused["reason"]) == (409, "Conflict")
        assert "the object has been modified; please apply your changes to the latest version" in refused["message"]

    def test_a_deletion_may_name_the_uid_of_the_object(self, cluster_namespace: ClusterNamespace):
        cluster_namespace.config_map("one")
        options = {"preconditions": {"uid": str(uuid.uuid4())}}
        refused = refusal(
            cluster_namespace.core.delete_namespaced_config_map, "one", cluster_namespace.namespace, body=options
        )
        assert (refused["code"], refused["reason"]) == (409, "Conflict")
        assert "the UID in the precondition (" in refused["message"]

    def test_a_missing_object_is_named(self, cluster_namespace: ClusterNamespace):
        refused = refusal(cluster_namespace.batch.read_namespaced_job, "none", cluster_namespace.namespace)
        assert (refused["code"], refused["reason"]) == (404, "NotFound")
        assert refused["message"] == 'jobs.batch "none" not found'

    def test_a_label_of_64_characters_is_refused(self, cluster_namespace: ClusterNamespace):
        refused = refusal(cluster_namespace.config_map, "one", labels={"a": "x" * 64})
        assert (refused["code"], refused["reason"]) == (422, "Invalid")
        assert refused["message"].startswith('ConfigMap "one" is invalid: metadata.labels: Invalid value: "xxx')
        assert "63" in refused["message"]

    def test_a_list_comes_in_pages_of_one_revision(self, cluster_namespace: ClusterNamespace):
        for name in ("a", "b", "c"):
            cluster_namespace.config_map(name, labels={"of": "us"})
        listed = cluster_namespace.core.list_namespaced_config_map
        first = listed(cluster_namespace.namespace, label_selector="of=us", limit=2)
        cluster_namespace.config_map("d", labels={"of": "us"})
        second = listed(
            cluster_namespace.namespace, label_selector="of=us", limit=2, _continue=first.metadata._continue
        )
        assert [config_map.metadata.name for config_map in [*first.items, *second.items]] == ["a", "b", "c"]
        assert second.metadata._continue is None

    def test_a_watch_goes_on_where_a_list_ended(self, cluster_namespace: ClusterNamespace):
        listed = cluster_namespace.core.list_namespaced_config_map(cluster_namespace.namespace, label_selector="of=us")
        cluster_namespace.config_map("one", labels={"of": "us"})
        cluster_namespace.config_map("other")
        cluster_namespace.core.patch_namespaced_config_map(
            "one", cluster_namespace.namespace, {"metadata": {"labels": {"of": "them"}}}
        )
        cluster_namespace.config_map("last", labels={"of": "us"})
        events = []
        options = {"label_selector": "of=us", "resource_version": listed.metadata.resource_version}
        stream = watch.Watch()
        for event in stream.stream(
            cluster_namespace.core.list_namespaced_config_map,
            cluster_namespace.namespace,
            **options,
            timeout_seconds=60,
        ):
            events.append((event["type"], event["object"].metadata.name))
            if events[-1][1] == "last":
                stream.stop()
        assert events == [("ADDED", "one"), ("DELETED", "one"), ("ADDED", "last")]

    def test_owned_objects_are_removed_with_their_owner(self, cluster_namespace: ClusterNamespace):
        owner = cluster_namespace.config_map("owner")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        cluster_namespace.config_map("owned", ownerReferences=[reference])
        cluster_namespace.core.delete_namespaced_config_map("owner", cluster_namespace.namespace)
        until(lambda: "owned" not in cluster_namespace.config_maps(), "the owned object to go")

    def test_an_object_whose_owner_has_another_uid_is_collected(self, cluster_namespace: ClusterNamespace):
        cluster_namespace.config_map("owner")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": str(uuid.uuid4())}
        cluster_namespace.config_map("owned", ownerReferences=[reference])
        until(lambda: "owned" not in cluster_namespace.config_maps(), "the orphan to go")
        assert "owner" in cluster_namespace.config_maps()


class TestPods:
    def test_a_pod_shows_the_exit_code_the_signal_and_the_end_of_the_output(self, cluster_namespace: ClusterNamespace):
        cluster_namespace.pod("echo first; echo last; exit 42", "exits")
        cluster_namespace.pod("sleep 600 & kill -9 $!; wait $!", "killed")
        until(lambda: len(cluster_namespace.pods(field_selector="status.phase=Failed")) == 2, "both pods to fail")
        exits, killed = (
            cluster_namespace.read_pod(name)["status"]["containerStatuses"][0]["state"]["terminated"]
            for name in ("exits", "killed")
        )
        assert (exits["exitCode"], exits["reason"], exits["message"]) == (42, "Error", "first\nlast\n")
        assert (killed["exitCode"], killed["reason"]) == (137, "Error")
        assert cluster_namespace.log(cluster_namespace.read_pod("exits"), tail_lines=1) == "last\n"
        assert cluster_namespace.log(cluster_namespace.read_pod("exits"), limit_bytes=3) == "fir"

    @pytest.mark.slow
    def test_a_deleted_pod_may_finish_within_its_grace_and_is_killed_after(self, cluster_namespace: ClusterNamespace):
        cluster_namespace.pod("trap 'echo asked' TERM; echo up; while true; do sleep 0.1; done")
        until(
            lambda: (
                cluster_namespace.read_pod()["status"]["phase"] == "Running"
                and "up" in cluster_namespace.log(cluster_namespace.read_pod())
            ),
            "a start",
        )
        cluster_namespace.core.delete_namespaced_pod("pod", cluster_namespace.namespace, grace_period_seconds=4)
        assert cluster_namespace.read_pod()["metadata"]["deletionGracePeriodSeconds"] == 4
        until(lambda: "asked" in cluster_namespace.log(cluster_namespace.read_pod()), "SIGTERM to arrive")
        until(lambda: not cluster_namespace.pods(), "the pod to go")

    @pytest.mark.slow
    def test_a_grace_cannot_be_shortened_later(self, cluster_namespace: ClusterNamespace):
        """The API accepts it; the kubelet still waits for the first grace (kubernetes/kubernetes#113606)."""
        script = "trap 'echo asked; sleep 5; exit 0' TERM; echo up; while true; do sleep 0.1; done"
        body = {"metadata": {"name": "pod", "finalizers": ["slipway/test"]}, **cluster_namespace.template(script)}
        cluster_namespace.core.create_namespaced_pod(cluster_namespace.namespace, body)
        until(
            lambda: (
                cluster_namespace.read_pod()["status"]["phase"] == "Running"
                and "up" in cluster_namespace.log(cluster_namespace.read_pod())
            ),
            "a start",
        )
        cluster_namespace.core.delete_namespaced_pod("pod", cluster_namespace.namespace, grace_period_seconds=300)
        until(lambda: "asked" in cluster_namespace.log(cluster_namespace.read_pod()), "SIGTERM to arrive")
        cluster_namespace.core.delete_namespaced_pod("pod", cluster_namespace.namespace, grace_period_seconds=1)
        assert cluster_namespace.read_pod()["metadata"]["deletionGracePeriodSeconds"] == 1
        until(lambda: cluster_namespace.read_pod()["status"]["phase"] != "Running", "the pod to end")
        assert cluster_namespace.read_pod()["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
        cluster_namespace.core.patch_namespaced_pod(
            "pod", cluster_namespace.namespace, {"metadata": {"finalizers": None}}
        )

    def test_a_pod_that_fits_on_no_node_says_why_and_is_removed_at_once(self, cluster_namespace: ClusterNamespace):
        cluster_namespace.pod("true", nodeSelector={"kubernetes.io/hostname": "nowhere"})
        pod = until(lambda: holds_not(cluster_namespace.read_pod(), "PodScheduled"), "the scheduler's verdict")
        status, reason, message = condition_of(pod, "PodScheduled")
        nodes = len(cluster_namespace.core.list_node().items)
        assert (status, reason) == ("False", "Unschedulable")
        why = f"{nodes} node(s) didn't match Pod's node affinity/selector"
        assert message.startswith(f"0/{nodes} nodes are available: {why}. no new claims to deallocate, preemption: ")
        of_it = "involvedObject.name=pod,reason=FailedScheduling"
        [event] = until(
            lambda: (
                cluster_namespace.core.list_namespaced_event(cluster_namespace.namespace, field_selector=of_it).items
            ),
            "an event",
        )
        assert (event.type, event.message) == ("Warning", message)
        cluster_namespace.core.delete_namespaced_pod("pod", cluster_namespace.namespace)
        assert not cluster_namespace.pods()

    def test_the_log_of_a_pod_without_a_node_is_empty(self, cluster_namespace: ClusterNamespace):
        cluster_namespace.pod("true", nodeSelector={"kubernetes.io/hostname": "nowhere"})
        assert cluster_namespace.log(cluster_namespace.read_pod()) == ""

    def test_a_volume_of_a_missing_config_map_keeps_a_pod_waiting(self, cluster_namespace: ClusterNamespace):
        body = cluster_namespace.template("true", volumes=[{"name": "config", "configMap": {"name": "missing"}}])
        body["spec"]["containers"][0]["volumeMounts"] = [{"name": "config", "mountPath": "/config"}]
        cluster_namespace.core.create_namespaced_pod(cluster_namespace.namespace, {"metadata": {"name": "pod"}, **body})
        of_it = "involvedObject.name=pod,reason=FailedMount"
        [event, *_] = until(
            lambda: (
                cluster_namespace.core.list_namespaced_event(cluster_namespace.namespace, field_selector=of_it).items
            ),
            "it",
        )
        assert 'MountVolume.SetUp failed for volume "config" : configmap "missing" not found' in event.message
        [waiting] = cluster_namespace.read_pod()["status"]["containerStatuses"]
        assert waiting["state"]["waiting"]["reason"] == "ContainerCreating"


class TestJobs:
    def test_an_indexed_job_gives_each_pod_its_index_and_its_name(self, cluster_namespace: ClusterNamespace):
        cluster_namespace.job(
            'echo "$JOB_COMPLETION_INDEX $(hostname 2>/dev/null) $HOSTNAME"', completions=2, parallelism=2
        )
        job = cluster_namespace.ended()
        reached = ("True", "CompletionsReached", "Reached expected number of succeeded pods")
        assert condition_of(job, "SuccessCriteriaMet") == condition_of(job, "Complete") == reached
        status = job["status"]
        assert (status["succeeded"], status["completedIndexes"], "failed" in status) == (2, "0,1", False)
        assert status["startTime"] <= status["completionTime"]
        first, second = sorted(
            cluster_namespace.pods(label_selector="job-name=job"), key=lambda pod: pod["metadata"]["name"]
        )
        assert first["metadata"]["name"].startswith("job-0-") and second["metadata"]["name"].startswith("job-1-")
        assert second["spec"]["hostname"] == "job-1"
        assert second["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
        assert cluster_namespace.log(second).split()[0] == "1" and cluster_namespace.log(second).split()[-1] == "job-1"

    def test_a_failure_that_the_policy_names_ends_the_job_at_once(self, cluster_namespace: ClusterNamespace):
        rule = {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "NotIn", "values": [0]}}
        cluster_namespace.job("exit 42", podFailurePolicy={"rules": [rule]}, backoffLimit=6)
        job = cluster_namespace.ended()
        [pod] = cluster_namespace.pods()
        name = f"{cluster_namespace.namespace}/{pod['metadata']['name']}"
        message = f"Container main for pod {name} failed with exit code 42 matching FailJob rule at index 0"
        assert (
            condition_of(job, "FailureTarget") == condition_of(job, "Failed") == ("True", "PodFailurePolicy", message)
        )
        assert (job["status"]["failed"], job["status"]["ready"], job["status"]["terminating"]) == (1, 0, 0)
        assert "completionTime" not in job["status"]

    def test_a_failure_beyond_the_limit_ends_the_job_and_all_its_pods(self, cluster_namespace: ClusterNamespace):
        script = "test $JOB_COMPLETION_INDEX = 0 && exit 1; exec sleep 600"
        cluster_namespace.job(script, completions=2, parallelism=2)
        job = cluster_namespace.ended()
        limit = ("True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        assert condition_of(job, "FailureTarget") == condition_of(job, "Failed") == limit
        assert job["status"]["failed"] == 2
        [pod] = until(
            lambda: [
                candidate for candidate in cluster_namespace.pods() if "deletionTimestamp" not in candidate["metadata"]
            ],
            "one left",
        )
        assert pod["metadata"]["name"].startswith("job-0-")

    def test_an_evicted_pod_says_so_and_fails_the_job(self, cluster_namespace: ClusterNamespace):
        rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        cluster_namespace.job("exec sleep 600", podFailurePolicy={"rules": [rule]})
        [pod] = until(lambda: cluster_namespace.pods(field_selector="status.phase=Running"), "the pod to run")
        name = pod["metadata"]["name"]
        cluster_namespace.core.create_namespaced_pod_eviction(
            name, cluster_namespace.namespace, {"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 1}}
        )
        job = cluster_namespace.ended()
        message = (
            f"Pod {cluster_namespace.namespace}/{name} has condition DisruptionTarget matching FailJob rule at index 0"
        )
        assert condition_of(job, "Failed") == ("True", "PodFailurePolicy", message)

    def test_a_suspended_job_has_no_pods_and_a_resumed_one_starts_anew(self, cluster_namespace: ClusterNamespace):
        cluster_namespace.job("exec sleep 600", suspend=True)
        job = until(lambda: holding(cluster_namespace.read("jobs"), "Suspended"), "the suspension")
        assert (
            condition_of(job, "Suspended") == ("True", "JobSuspended", "Job suspended")
            and "startTime" not in job["status"]
        )
        patch = cluster_namespace.batch.patch_namespaced_job
        patch("job", cluster_namespace.namespace, {"spec": {"suspend": False}})
        until(lambda: cluster_namespace.pods(field_selector="status.phase=Running"), "the pod to run")
        job = cluster_namespace.read("jobs")
        assert condition_of(job, "Suspended") == ("False", "JobResumed", "Job resumed") and "startTime" in job["status"]
        patch("job", cluster_namespace.namespace, {"spec": {"suspend": True}})
        until(
            lambda: all("deletionTimestamp" in pod["metadata"] for pod in cluster_namespace.pods()),
            "the pod to be deleted",
        )
        assert not any(holds(cluster_namespace.read("jobs"), end) for end in ENDS)

    def test_a_deleted_job_takes_its_pods_along_only_when_asked_to(self, cluster_namespace: ClusterNamespace):
        for name in ("orphaning", "background"):
            cluster_namespace.job("exec sleep 600", name)
        until(lambda: len(cluster_namespace.pods()) == 2, "two pods")
        cluster_namespace.batch.delete_namespaced_job("orphaning", cluster_namespace.namespace)
        cluster_namespace.batch.delete_namespaced_job(
            "background", cluster_namespace.namespace, propagation_policy="Background"
        )
        until(
            lambda: len([pod for pod in cluster_namespace.pods() if "deletionTimestamp" in pod["metadata"]]) < 2,
            "a deletion",
        )
        [orphan] = cluster_namespace.pods(label_selector="job-name=orphaning")
        until(
            lambda: "ownerReferences" not in cluster_namespace.read_pod(orphan["metadata"]["name"])["metadata"],
            "it to be disowned",
        )

    def test_the_template_of_a_job_cannot_be_changed(self, cluster_namespace: ClusterNamespace):
        job = cluster_namespace.job("true", suspend=False)
        until(lambda: "startTime" in cluster_namespace.read("jobs").get("status", {}), "its start")
        job = cluster_namespace.read("jobs")
        job["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
        del job["metadata"]["resourceVersion"]
        refused = refusal(cluster_namespace.batch.replace_namespaced_job, "job", cluster_namespace.namespace, job)
        assert (refused["code"], refused["reason"]) == (422, "Invalid")
        assert "spec.template: Invalid value" in refused["message"] and "field is immutable" in refused["message"]


class TestCustomJobs:
    def job_set(self, cluster_namespace: ClusterNamespace, script: str) -> Object:
        spec = cluster_namespace.job_body(script, completions=2, parallelism=2)["spec"]
        return {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": spec}}]}

    def test_a_job_set_names_its_pods_in_the_dns_and_completes(self, cluster_namespace: ClusterNamespace):
        cluster_namespace.custom(
            "jobsets", {"kind": "JobSet", "metadata": {"name": "job"}, "spec": self.job_set(cluster_namespace, "true")}
        )
        job_set = cluster_namespace.ended("jobsets")
        assert condition_of(job_set, "Completed") == ("True", "AllJobsCompleted", "jobset completed successfully")
        assert job_set["status"]["terminalState"] == "Completed"
        first, _ = sorted(cluster_namespace.pods(), key=lambda pod: pod["metadata"]["name"])
        assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("job-node-0-0", "job")
        assert first["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == "0"
        service = cluster_namespace.core.read_namespaced_service("job", cluster_namespace.namespace)
        assert (service.spec.cluster_ip, service.spec.publish_not_ready_addresses) == ("None", True)

    def test_a_job_set_without_a_failure_policy_fails_with_its_first_job(self, cluster_namespace: ClusterNamespace):
        spec = self.job_set(cluster_namespace, "exit 3")
        cluster_namespace.custom("jobsets", {"kind": "JobSet", "metadata": {"name": "job"}, "spec": spec})
        job_set = cluster_namespace.ended("jobsets")
        message = "jobset failed due to one or more job failures (first failed job: job-node-0)"
        assert condition_of(job_set, "Failed") == ("True", "FailedJobs", message)
        assert job_set["status"].get("restarts", 0) == 0

    def test_a_suspended_job_set_waits_with_suspended_jobs(self, cluster_namespace: ClusterNamespace):
        spec = {**self.job_set(cluster_namespace, "true"), "suspend": True}
        cluster_namespace.custom("jobsets", {"kind": "JobSet", "metadata": {"name": "job"}, "spec": spec})
        job_set = until(lambda: holding(cluster_namespace.read("jobsets"), "Suspended"), "the suspension")
        assert condition_of(job_set, "Suspended") == ("True", "SuspendedJobs", "jobset is suspended")
        assert cluster_namespace.read("jobs", "job-node-0")["spec"]["suspend"] is True and not cluster_namespace.pods()

    def test_a_train_job_makes_a_job_set_of_its_name_and_copies_its_conditions(
        self, cluster_namespace: ClusterNamespace
    ):
        runtime = {"template": {"spec": self.job_set(cluster_namespace, "true")}}
        metadata = {"name": "job"}
        cluster_namespace.custom("trainingruntimes", {"kind": "TrainingRuntime", "metadata": metadata, "spec": runtime})
        reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "job"}
        cluster_namespace.custom(
            "trainjobs", {"kind": "TrainJob", "metadata": metadata, "spec": {"runtimeRef": reference}}
        )
        train_job = cluster_namespace.ended("trainjobs")
        assert condition_of(train_job, "Complete") == ("True", "AllJobsCompleted", "jobset completed successfully")
        [owner] = cluster_namespace.read("jobsets")["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("TrainJob", "job", True)

    def test_a_pytorch_job_has_a_pod_and_a_service_for_every_worker(self, cluster_namespace: ClusterNamespace):
        template = cluster_namespace.template("exit $(test $PET_NNODES = 2; echo $?)")
        template["spec"]["containers"][0]["name"] = "pytorch"
        worker = {"replicas": 2, "restartPolicy": "Never", "template": template}
        spec = {"runPolicy": {"backoffLimit": 0}, "pytorchReplicaSpecs": {"Worker": worker}}
        cluster_namespace.custom("pytorchjobs", {"kind": "PyTorchJob", "metadata": {"name": "job"}, "spec": spec})
        job = cluster_namespace.ended("pytorchjobs")
        done = ("True", "PyTorchJobSucceeded", f"PyTorchJob {cluster_namespace.namespace}/job successfully completed.")
        assert condition_of(job, "Succeeded") == done and condition(job, "Running")["status"] == "False"
        assert sorted(pod["metadata"]["name"] for pod in cluster_namespace.pods()) == ["job-worker-0", "job-worker-1"]
        assert (
            cluster_namespace.core.read_namespaced_service("job-worker-1", cluster_namespace.namespace).spec.cluster_ip
            == "None"
        )
        labels = cluster_namespace.read_pod("job-worker-1")["metadata"]["labels"]
        assert labels["training.kubeflow.org/replica-index"] == "1"
