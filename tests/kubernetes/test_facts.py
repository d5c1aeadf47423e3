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
from tests.kubernetes.place import ENDS, Object, Place, condition, condition_of, holding, holds, holds_not, refusal
from tests.kubernetes.simulated.cluster import Cluster


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.cluster)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
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
        yield Place(api, name, image)
    finally:
        core.delete_collection_namespaced_pod(name, grace_period_seconds=0)  # no pod named: one may go meanwhile
        core.delete_namespace(name)
        api.close()


class TestObjects:
    def test_a_name_is_taken_once(self, place: Place):
        place.config_map("one")
        refused = refusal(place.config_map, "one")
        assert (refused["code"], refused["reason"]) == (409, "AlreadyExists")
        assert refused["message"] == 'configmaps "one" already exists'

    def test_an_update_of_a_changed_object_is_refused(self, place: Place):
        first = place.config_map("one")
        replace = place.core.replace_namespaced_config_map
        replace("one", place.namespace, {**first, "data": {"key": "newer"}})
        refused = refusal(replace, "one", place.namespace, {**first, "data": {"key": "late"}})
        assert (refused["code"], refused["reason"]) == (409, "Conflict")
        assert "the object has been modified; please apply your changes to the latest version" in refused["message"]

    def test_a_deletion_may_name_the_uid_of_the_object(self, place: Place):
        place.config_map("one")
        options = {"preconditions": {"uid": str(uuid.uuid4())}}
        refused = refusal(place.core.delete_namespaced_config_map, "one", place.namespace, body=options)
        assert (refused["code"], refused["reason"]) == (409, "Conflict")
        assert "the UID in the precondition (" in refused["message"]

    def test_a_missing_object_is_named(self, place: Place):
        refused = refusal(place.batch.read_namespaced_job, "none", place.namespace)
        assert (refused["code"], refused["reason"]) == (404, "NotFound")
        assert refused["message"] == 'jobs.batch "none" not found'

    def test_a_label_of_64_characters_is_refused(self, place: Place):
        refused = refusal(place.config_map, "one", labels={"a": "x" * 64})
        assert (refused["code"], refused["reason"]) == (422, "Invalid")
        assert refused["message"].startswith('ConfigMap "one" is invalid: metadata.labels: Invalid value: "xxx')
        assert "63" in refused["message"]

    def test_a_list_comes_in_pages_of_one_revision(self, place: Place):
        for name in ("a", "b", "c"):
            place.config_map(name, labels={"of": "us"})
        listed = place.core.list_namespaced_config_map
        first = listed(place.namespace, label_selector="of=us", limit=2)
        place.config_map("d", labels={"of": "us"})
        second = listed(place.namespace, label_selector="of=us", limit=2, _continue=first.metadata._continue)
        assert [each.metadata.name for each in [*first.items, *second.items]] == ["a", "b", "c"]
        assert second.metadata._continue is None

    def test_a_watch_goes_on_where_a_list_ended(self, place: Place):
        listed = place.core.list_namespaced_config_map(place.namespace, label_selector="of=us")
        place.config_map("one", labels={"of": "us"})
        place.config_map("other")
        place.core.patch_namespaced_config_map("one", place.namespace, {"metadata": {"labels": {"of": "them"}}})
        place.config_map("last", labels={"of": "us"})
        seen = []
        wanted = {"label_selector": "of=us", "resource_version": listed.metadata.resource_version}
        stream = watch.Watch()
        for event in stream.stream(
            place.core.list_namespaced_config_map, place.namespace, **wanted, timeout_seconds=60
        ):
            seen.append((event["type"], event["object"].metadata.name))
            if seen[-1][1] == "last":
                stream.stop()
        assert seen == [("ADDED", "one"), ("DELETED", "one"), ("ADDED", "last")]

    def test_owned_objects_are_removed_with_their_owner(self, place: Place):
        owner = place.config_map("owner")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        place.config_map("owned", ownerReferences=[reference])
        place.core.delete_namespaced_config_map("owner", place.namespace)
        until(lambda: "owned" not in place.config_maps(), "the owned object to go")

    def test_an_object_whose_owner_has_another_uid_is_collected(self, place: Place):
        place.config_map("owner")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": str(uuid.uuid4())}
        place.config_map("owned", ownerReferences=[reference])
        until(lambda: "owned" not in place.config_maps(), "the orphan to go")
        assert "owner" in place.config_maps()


class TestPods:
    def test_a_pod_shows_the_exit_code_the_signal_and_the_end_of_the_output(self, place: Place):
        place.pod("echo first; echo last; exit 42", "exits")
        place.pod("sleep 600 & kill -9 $!; wait $!", "killed")
        until(lambda: len(place.pods(field_selector="status.phase=Failed")) == 2, "both pods to fail")
        exits, killed = (
            place.read_pod(name)["status"]["containerStatuses"][0]["state"]["terminated"]
            for name in ("exits", "killed")
        )
        assert (exits["exitCode"], exits["reason"], exits["message"]) == (42, "Error", "first\nlast\n")
        assert (killed["exitCode"], killed["reason"]) == (137, "Error")
        assert place.log(place.read_pod("exits"), tail_lines=1) == "last\n"
        assert place.log(place.read_pod("exits"), limit_bytes=3) == "fir"

    @pytest.mark.slow
    def test_a_deleted_pod_may_finish_within_its_grace_and_is_killed_after(self, place: Place):
        place.pod("trap 'echo asked' TERM; echo up; while true; do sleep 0.1; done")
        until(
            lambda: place.read_pod()["status"]["phase"] == "Running" and "up" in place.log(place.read_pod()), "a start"
        )
        place.core.delete_namespaced_pod("pod", place.namespace, grace_period_seconds=4)
        assert place.read_pod()["metadata"]["deletionGracePeriodSeconds"] == 4
        until(lambda: "asked" in place.log(place.read_pod()), "SIGTERM to arrive")
        until(lambda: not place.pods(), "the pod to go")

    @pytest.mark.slow
    def test_a_grace_cannot_be_shortened_later(self, place: Place):
        """The API accepts it; the kubelet still waits for the first grace (kubernetes/kubernetes#113606)."""
        script = "trap 'echo asked; sleep 5; exit 0' TERM; echo up; while true; do sleep 0.1; done"
        body = {"metadata": {"name": "pod", "finalizers": ["slipway/test"]}, **place.template(script)}
        place.core.create_namespaced_pod(place.namespace, body)
        until(
            lambda: place.read_pod()["status"]["phase"] == "Running" and "up" in place.log(place.read_pod()), "a start"
        )
        place.core.delete_namespaced_pod("pod", place.namespace, grace_period_seconds=300)
        until(lambda: "asked" in place.log(place.read_pod()), "SIGTERM to arrive")
        place.core.delete_namespaced_pod("pod", place.namespace, grace_period_seconds=1)
        assert place.read_pod()["metadata"]["deletionGracePeriodSeconds"] == 1
        until(lambda: place.read_pod()["status"]["phase"] != "Running", "the pod to end")
        assert place.read_pod()["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
        place.core.patch_namespaced_pod("pod", place.namespace, {"metadata": {"finalizers": None}})

    def test_a_pod_that_fits_on_no_node_says_why_and_is_removed_at_once(self, place: Place):
        place.pod("true", nodeSelector={"kubernetes.io/hostname": "nowhere"})
        pod = until(lambda: holds_not(place.read_pod(), "PodScheduled"), "the scheduler's verdict")
        status, reason, message = condition_of(pod, "PodScheduled")
        nodes = len(place.core.list_node().items)
        assert (status, reason) == ("False", "Unschedulable")
        why = f"{nodes} node(s) didn't match Pod's node affinity/selector"
        assert message.startswith(f"0/{nodes} nodes are available: {why}. no new claims to deallocate, preemption: ")
        of_it = "involvedObject.name=pod,reason=FailedScheduling"
        [event] = until(
            lambda: place.core.list_namespaced_event(place.namespace, field_selector=of_it).items, "an event"
        )
        assert (event.type, event.message) == ("Warning", message)
        place.core.delete_namespaced_pod("pod", place.namespace)
        assert not place.pods()

    def test_the_log_of_a_pod_without_a_node_is_empty(self, place: Place):
        place.pod("true", nodeSelector={"kubernetes.io/hostname": "nowhere"})
        assert place.log(place.read_pod()) == ""

    def test_a_volume_of_a_missing_config_map_keeps_a_pod_waiting(self, place: Place):
        body = place.template("true", volumes=[{"name": "config", "configMap": {"name": "missing"}}])
        body["spec"]["containers"][0]["volumeMounts"] = [{"name": "config", "mountPath": "/config"}]
        place.core.create_namespaced_pod(place.namespace, {"metadata": {"name": "pod"}, **body})
        of_it = "involvedObject.name=pod,reason=FailedMount"
        [event, *_] = until(lambda: place.core.list_namespaced_event(place.namespace, field_selector=of_it).items, "it")
        assert 'MountVolume.SetUp failed for volume "config" : configmap "missing" not found' in event.message
        [waiting] = place.read_pod()["status"]["containerStatuses"]
        assert waiting["state"]["waiting"]["reason"] == "ContainerCreating"


class TestJobs:
    def test_an_indexed_job_gives_each_pod_its_index_and_its_name(self, place: Place):
        place.job('echo "$JOB_COMPLETION_INDEX $(hostname 2>/dev/null) $HOSTNAME"', completions=2, parallelism=2)
        job = place.ended()
        reached = ("True", "CompletionsReached", "Reached expected number of succeeded pods")
        assert condition_of(job, "SuccessCriteriaMet") == condition_of(job, "Complete") == reached
        status = job["status"]
        assert (status["succeeded"], status["completedIndexes"], "failed" in status) == (2, "0,1", False)
        assert status["startTime"] <= status["completionTime"]
        first, second = sorted(place.pods(label_selector="job-name=job"), key=lambda pod: pod["metadata"]["name"])
        assert first["metadata"]["name"].startswith("job-0-") and second["metadata"]["name"].startswith("job-1-")
        assert second["spec"]["hostname"] == "job-1"
        assert second["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
        assert place.log(second).split()[0] == "1" and place.log(second).split()[-1] == "job-1"

    def test_a_failure_that_the_policy_names_ends_the_job_at_once(self, place: Place):
        rule = {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "NotIn", "values": [0]}}
        place.job("exit 42", podFailurePolicy={"rules": [rule]}, backoffLimit=6)
        job = place.ended()
        [pod] = place.pods()
        name = f"{place.namespace}/{pod['metadata']['name']}"
        message = f"Container main for pod {name} failed with exit code 42 matching FailJob rule at index 0"
        assert (
            condition_of(job, "FailureTarget") == condition_of(job, "Failed") == ("True", "PodFailurePolicy", message)
        )
        assert (job["status"]["failed"], job["status"]["ready"], job["status"]["terminating"]) == (1, 0, 0)
        assert "completionTime" not in job["status"]

    def test_a_failure_beyond_the_limit_ends_the_job_and_all_its_pods(self, place: Place):
        script = "test $JOB_COMPLETION_INDEX = 0 && exit 1; exec sleep 600"
        place.job(script, completions=2, parallelism=2)
        job = place.ended()
        limit = ("True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        assert condition_of(job, "FailureTarget") == condition_of(job, "Failed") == limit
        assert job["status"]["failed"] == 2
        [pod] = until(
            lambda: [each for each in place.pods() if "deletionTimestamp" not in each["metadata"]], "one left"
        )
        assert pod["metadata"]["name"].startswith("job-0-")

    def test_an_evicted_pod_says_so_and_fails_the_job(self, place: Place):
        rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        place.job("exec sleep 600", podFailurePolicy={"rules": [rule]})
        [pod] = until(lambda: place.pods(field_selector="status.phase=Running"), "the pod to run")
        name = pod["metadata"]["name"]
        place.core.create_namespaced_pod_eviction(
            name, place.namespace, {"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 1}}
        )
        job = place.ended()
        message = f"Pod {place.namespace}/{name} has condition DisruptionTarget matching FailJob rule at index 0"
        assert condition_of(job, "Failed") == ("True", "PodFailurePolicy", message)

    def test_a_suspended_job_has_no_pods_and_a_resumed_one_starts_anew(self, place: Place):
        place.job("exec sleep 600", suspend=True)
        job = until(lambda: holding(place.read("jobs"), "Suspended"), "the suspension")
        assert (
            condition_of(job, "Suspended") == ("True", "JobSuspended", "Job suspended")
            and "startTime" not in job["status"]
        )
        patch = place.batch.patch_namespaced_job
        patch("job", place.namespace, {"spec": {"suspend": False}})
        until(lambda: place.pods(field_selector="status.phase=Running"), "the pod to run")
        job = place.read("jobs")
        assert condition_of(job, "Suspended") == ("False", "JobResumed", "Job resumed") and "startTime" in job["status"]
        patch("job", place.namespace, {"spec": {"suspend": True}})
        until(lambda: all("deletionTimestamp" in pod["metadata"] for pod in place.pods()), "the pod to be deleted")
        assert not any(holds(place.read("jobs"), end) for end in ENDS)

    def test_a_deleted_job_takes_its_pods_along_only_when_asked_to(self, place: Place):
        for name in ("orphaning", "background"):
            place.job("exec sleep 600", name)
        until(lambda: len(place.pods()) == 2, "two pods")
        place.batch.delete_namespaced_job("orphaning", place.namespace)
        place.batch.delete_namespaced_job("background", place.namespace, propagation_policy="Background")
        until(lambda: len([pod for pod in place.pods() if "deletionTimestamp" in pod["metadata"]]) < 2, "a deletion")
        [left] = place.pods(label_selector="job-name=orphaning")
        until(
            lambda: "ownerReferences" not in place.read_pod(left["metadata"]["name"])["metadata"], "it to be disowned"
        )

    def test_the_template_of_a_job_cannot_be_changed(self, place: Place):
        job = place.job("true", suspend=False)
        until(lambda: "startTime" in place.read("jobs").get("status", {}), "its start")
        job = place.read("jobs")
        job["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
        del job["metadata"]["resourceVersion"]
        refused = refusal(place.batch.replace_namespaced_job, "job", place.namespace, job)
        assert (refused["code"], refused["reason"]) == (422, "Invalid")
        assert "spec.template: Invalid value" in refused["message"] and "field is immutable" in refused["message"]


class TestCustomJobs:
    def job_set(self, place: Place, script: str) -> Object:
        spec = place.job_body(script, completions=2, parallelism=2)["spec"]
        return {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": spec}}]}

    def test_a_job_set_names_its_pods_in_the_dns_and_completes(self, place: Place):
        place.custom("jobsets", {"kind": "JobSet", "metadata": {"name": "job"}, "spec": self.job_set(place, "true")})
        job_set = place.ended("jobsets")
        assert condition_of(job_set, "Completed") == ("True", "AllJobsCompleted", "jobset completed successfully")
        assert job_set["status"]["terminalState"] == "Completed"
        first, _ = sorted(place.pods(), key=lambda pod: pod["metadata"]["name"])
        assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("job-node-0-0", "job")
        assert first["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == "0"
        service = place.core.read_namespaced_service("job", place.namespace)
        assert (service.spec.cluster_ip, service.spec.publish_not_ready_addresses) == ("None", True)

    def test_a_job_set_without_a_failure_policy_fails_with_its_first_job(self, place: Place):
        spec = self.job_set(place, "exit 3")
        place.custom("jobsets", {"kind": "JobSet", "metadata": {"name": "job"}, "spec": spec})
        job_set = place.ended("jobsets")
        message = "jobset failed due to one or more job failures (first failed job: job-node-0)"
        assert condition_of(job_set, "Failed") == ("True", "FailedJobs", message)
        assert job_set["status"].get("restarts", 0) == 0

    def test_a_suspended_job_set_waits_with_suspended_jobs(self, place: Place):
        spec = {**self.job_set(place, "true"), "suspend": True}
        place.custom("jobsets", {"kind": "JobSet", "metadata": {"name": "job"}, "spec": spec})
        job_set = until(lambda: holding(place.read("jobsets"), "Suspended"), "the suspension")
        assert condition_of(job_set, "Suspended") == ("True", "SuspendedJobs", "jobset is suspended")
        assert place.read("jobs", "job-node-0")["spec"]["suspend"] is True and not place.pods()

    def test_a_train_job_makes_a_job_set_of_its_name_and_copies_its_conditions(self, place: Place):
        runtime = {"template": {"spec": self.job_set(place, "true")}}
        metadata = {"name": "job"}
        place.custom("trainingruntimes", {"kind": "TrainingRuntime", "metadata": metadata, "spec": runtime})
        reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "job"}
        place.custom("trainjobs", {"kind": "TrainJob", "metadata": metadata, "spec": {"runtimeRef": reference}})
        train_job = place.ended("trainjobs")
        assert condition_of(train_job, "Complete") == ("True", "AllJobsCompleted", "jobset completed successfully")
        [owner] = place.read("jobsets")["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("TrainJob", "job", True)

    def test_a_pytorch_job_has_a_pod_and_a_service_for_every_worker(self, place: Place):
        template = place.template("exit $(test $PET_NNODES = 2; echo $?)")
        template["spec"]["containers"][0]["name"] = "pytorch"
        worker = {"replicas": 2, "restartPolicy": "Never", "template": template}
        spec = {"runPolicy": {"backoffLimit": 0}, "pytorchReplicaSpecs": {"Worker": worker}}
        place.custom("pytorchjobs", {"kind": "PyTorchJob", "metadata": {"name": "job"}, "spec": spec})
        job = place.ended("pytorchjobs")
        done = ("True", "PyTorchJobSucceeded", f"PyTorchJob {place.namespace}/job successfully completed.")
        assert condition_of(job, "Succeeded") == done and condition(job, "Running")["status"] == "False"
        assert sorted(pod["metadata"]["name"] for pod in place.pods()) == ["job-worker-0", "job-worker-1"]
        assert place.core.read_namespaced_service("job-worker-1", place.namespace).spec.cluster_ip == "None"
        labels = place.read_pod("job-worker-1")["metadata"]["labels"]
        assert labels["training.kubeflow.org/replica-index"] == "1"
