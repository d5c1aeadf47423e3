"""Faults of the simulated cluster: nodes, networks, the API server, quotas.

Where each was seen stands beside it; what a real cluster can be asked for in passing is in `test_facts.py`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

from tests.conftest import Marked, until
from tests.kubernetes.cluster_namespace import ClusterNamespace, condition, condition_of, holds, refusal
from tests.kubernetes.simulated.cluster import Cluster
from tests.kubernetes.simulated.kinds import NODES, PODS, WORKLOADS, Object

FAIL_DISRUPTED = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.fixture
def cluster(tmp_path: Path, marked: Marked) -> Iterator[Cluster]:
    """A cluster of the test's own, which it breaks."""
    with Cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def cluster_namespace(cluster: Cluster) -> Iterator[ClusterNamespace]:
    api = config.new_client_from_config(str(cluster.kubeconfig))
    api.configuration.retries = False
    yield ClusterNamespace(api, "default", "any")
    api.close()


def running(cluster_namespace: ClusterNamespace, count: int = 1) -> list[Object]:
    def all_run() -> list[Object] | None:
        running_pods = cluster_namespace.pods(field_selector="status.phase=Running")
        return running_pods if len(running_pods) == count else None

    running_pods = until(all_run, f"{count} pods to run")
    assert running_pods
    return running_pods


class TestNodes:
    """As seen on a real cluster (Kubernetes 1.36), with its node controller and taint eviction."""

    def job_on_a_lost_node(self, cluster: Cluster, cluster_namespace: ClusterNamespace) -> str:
        """The node of a job's pod, which has lost its power; the control plane has given the pod up."""
        tolerations = [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
            for key in ("not-ready", "unreachable")
        ]
        body = cluster_namespace.job_body("exec sleep 600", podFailurePolicy={"rules": [FAIL_DISRUPTED]})
        body["spec"]["template"]["spec"]["tolerations"] = tolerations
        cluster_namespace.batch.create_namespaced_job(cluster_namespace.namespace, body)
        [pod] = running(cluster_namespace)
        node = str(pod["spec"]["nodeName"])
        cluster.power_off(node)
        until(
            lambda: [pod for pod in cluster_namespace.pods() if "deletionTimestamp" in pod["metadata"]],
            "the pod to be given up",
        )
        return node

    def test_a_node_without_power_is_unknown_and_tainted_and_its_pods_stay_terminating(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace, marked: Marked
    ):
        name = self.job_on_a_lost_node(cluster, cluster_namespace)
        assert not marked.pids()
        node = cluster_namespace.json(cluster_namespace.core.read_node(name))
        lost = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        assert condition_of(node, "Ready") == lost
        taints = {(taint["key"], taint["effect"]) for taint in node["spec"]["taints"]}
        assert taints == {("node.kubernetes.io/unreachable", effect) for effect in ("NoSchedule", "NoExecute")}
        [pod] = cluster_namespace.pods()
        assert pod["status"]["phase"] == "Running" and not holds(pod, "Ready")
        why = ("True", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
        assert condition_of(pod, "DisruptionTarget") == why
        assert (
            not condition(cluster_namespace.read("jobs"), "Failed")
            and cluster_namespace.read("jobs")["status"]["terminating"] == 1
        )
        refused = refusal(
            cluster_namespace.core.read_namespaced_pod_log, pod["metadata"]["name"], cluster_namespace.namespace
        )
        assert refused["code"] == 500 and "no route to host" in refused["message"]

    def test_a_node_that_boots_lets_its_pods_go_and_the_job_ends(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace
    ):
        cluster.power_on(self.job_on_a_lost_node(cluster, cluster_namespace))
        job = cluster_namespace.ended()
        assert (
            condition_of(job, "Failed")[1] == "PodFailurePolicy"
            and "DisruptionTarget" in condition_of(job, "Failed")[2]
        )

    def test_pods_are_removed_with_their_deleted_node(self, cluster: Cluster, cluster_namespace: ClusterNamespace):
        node = self.job_on_a_lost_node(cluster, cluster_namespace)
        cluster_namespace.core.delete_node(node)
        assert condition_of(cluster_namespace.ended(), "Failed")[1] == "PodFailurePolicy"
        until(lambda: not cluster_namespace.pods(), "the pod to be removed")

    def test_pods_of_a_node_that_is_cut_off_run_on(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace, marked: Marked
    ):
        cluster_namespace.job("echo up; exec sleep 600")
        [pod] = running(cluster_namespace)
        until(lambda: cluster_namespace.log(pod), "its process")
        before = marked.pids()
        cluster.partition(pod["spec"]["nodeName"])
        until(
            lambda: (
                not holds(cluster_namespace.json(cluster_namespace.core.read_node(pod["spec"]["nodeName"])), "Ready")
            ),
            "the node's end",
        )
        cluster.delete(PODS, cluster_namespace.namespace, pod["metadata"]["name"], gracePeriodSeconds=0)
        assert marked.pids() == before
        cluster.heal(pod["spec"]["nodeName"])
        until(lambda: not set(before) & set(marked.pids()), "the pod that was removed to end")

    def test_one_pod_a_node_and_why_the_next_must_wait(self, cluster: Cluster, cluster_namespace: ClusterNamespace):
        body = cluster_namespace.job_body("exec sleep 600", completions=3, parallelism=3)
        term = {"labelSelector": {"matchLabels": {"of": "us"}}, "topologyKey": "kubernetes.io/hostname"}
        body["spec"]["template"]["metadata"] = {"labels": {"of": "us"}}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        body["spec"]["template"]["spec"]["affinity"] = affinity
        cluster_namespace.batch.create_namespaced_job(cluster_namespace.namespace, body)
        assert {pod["spec"]["nodeName"] for pod in running(cluster_namespace, 2)} == {"node-0", "node-1"}
        [pending_pod] = cluster_namespace.pods(field_selector="status.phase=Pending")
        message = condition_of(pending_pod, "PodScheduled")[2]
        assert message.startswith("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.")
        cluster.add_nodes("node-2")
        running(cluster_namespace, 3)

    def test_a_thousand_nodes_need_no_processes(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace, marked: Marked
    ):
        cluster.add_nodes(*(f"gpu-{number}" for number in range(998)), with_kubelet=False, labels={"fleet": "large"})
        cluster_namespace.job("true", completions=8, parallelism=8)
        body = cluster_namespace.template("true", nodeSelector={"fleet": "large"})
        cluster_namespace.core.create_namespaced_pod(
            cluster_namespace.namespace, {"metadata": {"name": "kept"}, **body}
        )
        until(lambda: cluster_namespace.read_pod("kept")["status"]["phase"] == "Running", "the pod to be said to run")
        assert len(cluster.all_of(NODES)) == 1000


class TestTheApiServer:
    def test_a_stopped_api_server_refuses_connections_and_keeps_its_objects(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace
    ):
        """Seen on a real cluster whose API server was killed and started again."""
        cluster_namespace.config_map("one")
        cluster.stop_api()
        with pytest.raises(HTTPError):
            cluster_namespace.config_map("two")
        cluster.start_api()
        assert cluster_namespace.core.read_namespaced_config_map("one", cluster_namespace.namespace).data == {
            "key": "value"
        }

    def test_pods_that_end_meanwhile_are_reported_afterwards(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace, tmp_path: Path
    ):
        gate = tmp_path / "gate"
        cluster_namespace.job(f"while ! test -e {gate}; do sleep 0.05; done")
        running(cluster_namespace)
        cluster.stop_api()
        gate.touch()
        cluster.start_api()
        assert holds(cluster_namespace.ended(), "Complete")

    def test_a_watch_from_a_forgotten_revision_gets_410(self, cluster: Cluster, cluster_namespace: ClusterNamespace):
        """k8s.io/apiserver/pkg/storage/cacher: an ERROR event with status 410, whatever the connection's status."""
        version = cluster_namespace.core.list_namespaced_config_map(
            cluster_namespace.namespace
        ).metadata.resource_version
        cluster_namespace.config_map("one")
        cluster.expire_watches()
        with pytest.raises(client.ApiException) as expired:
            for _ in watch.Watch().stream(
                cluster_namespace.core.list_namespaced_config_map,
                cluster_namespace.namespace,
                resource_version=version,
                timeout_seconds=60,
            ):
                pass
        assert expired.value.status == 410 and "too old resource version" in str(expired.value.reason)

    def test_a_watch_ends_after_its_time_and_bookmarks_carry_its_revision(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace
    ):
        version = cluster_namespace.core.list_namespaced_pod(cluster_namespace.namespace).metadata.resource_version
        cluster_namespace.config_map("other")
        events = watch.Watch().stream(
            cluster_namespace.core.list_namespaced_pod,
            cluster_namespace.namespace,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=1,
        )
        [bookmark] = events
        assert bookmark["type"] == "BOOKMARK"
        assert int(bookmark["raw_object"]["metadata"]["resourceVersion"]) > int(version)

    def test_a_verb_that_is_not_allowed_is_named(self, cluster: Cluster, cluster_namespace: ClusterNamespace):
        """k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go."""
        cluster.forbid("create", "jobs")
        refused = refusal(cluster_namespace.job, "true")
        who = 'User "system:serviceaccount:slipway:slipway" cannot create resource "jobs" in API group "batch"'
        message = f'jobs.batch is forbidden: {who} in the namespace "default"'
        assert (refused["code"], refused["reason"], refused["message"]) == (403, "Forbidden", message)
        cluster.allow()
        assert cluster_namespace.job("true")

    def test_a_kind_whose_definition_is_not_installed_is_not_found(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace
    ):
        cluster.uninstall("jobset")
        with pytest.raises(client.ApiException) as refused:
            cluster_namespace.read("jobsets")
        assert (refused.value.status, refused.value.body) == (404, "404 page not found\n")
        cluster.install("jobset")
        assert refusal(cluster_namespace.read, "jobsets")["message"] == 'jobsets.jobset.x-k8s.io "job" not found'

    def test_requests_are_counted(self, cluster: Cluster, cluster_namespace: ClusterNamespace):
        before = cluster.requests()
        cluster_namespace.config_map("one")
        cluster_namespace.pods()
        assert cluster.requests() - before == {("create", "configmaps"): 1, ("list", "pods"): 1}


class TestPods:
    def test_a_missing_image_keeps_a_pod_waiting_until_it_exists(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace
    ):
        """Seen on a real cluster; k8s.io/kubernetes/pkg/kubelet/images."""
        cluster.lose_image("any")
        cluster_namespace.pod("true")
        reasons = {"ErrImagePull", "ImagePullBackOff"}

        def pull_fails() -> bool:
            [status] = cluster_namespace.read_pod()["status"].get("containerStatuses") or [{"state": {}}]
            return status["state"].get("waiting", {}).get("reason") in reasons

        until(pull_fails, "the pull to fail")
        cluster.find_image("any")
        until(lambda: cluster_namespace.read_pod()["status"]["phase"] == "Succeeded", "the pod to run")

    def test_a_container_above_its_memory_is_killed_with_137(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace
    ):
        """Seen on a real cluster: reason OOMKilled, exit code 137."""
        cluster_namespace.pod("exec sleep 600")
        running(cluster_namespace)
        cluster.run_out_of_memory(cluster_namespace.namespace, "pod", "main")
        until(lambda: cluster_namespace.read_pod()["status"]["phase"] == "Failed", "the pod to fail")
        ended = cluster_namespace.read_pod()["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")

    def test_all_processes_of_a_container_end_with_it(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace, marked: Marked
    ):
        """As a PID namespace does: pid_namespaces(7)."""
        cluster_namespace.pod("setsid sleep 600 & sleep 600 & echo up; exec sleep 600")
        running(cluster_namespace)
        until(lambda: "up" in cluster_namespace.log(cluster_namespace.read_pod()), "all to be up")
        cluster_namespace.core.delete_namespaced_pod("pod", cluster_namespace.namespace, grace_period_seconds=1)
        until(lambda: not cluster_namespace.pods(), "the pod to go")
        assert not marked.pids()

    def test_names_of_pods_lead_to_this_machine_and_each_job_meets_on_a_port_of_its_own(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace
    ):
        spec = {"clusterIP": "None", "selector": {"job-name": "job"}}
        cluster_namespace.core.create_namespaced_service(
            cluster_namespace.namespace, {"metadata": {"name": "job"}, "spec": spec}
        )
        body = cluster_namespace.job_body("echo $0 $MASTER_ADDR $MASTER_PORT")
        template = body["spec"]["template"]["spec"]
        template["subdomain"] = "job"
        [container] = template["containers"]
        container["command"].append("--rdzv-endpoint=job-0.job:29500")
        values = {"MASTER_ADDR": "job-0.job.default.svc.cluster.local", "MASTER_PORT": "29500"}
        container["env"] = [{"name": name, "value": value} for name, value in values.items()]
        cluster_namespace.batch.create_namespaced_job(cluster_namespace.namespace, body)
        cluster_namespace.ended()
        [pod] = cluster_namespace.pods()
        endpoint, address, port = cluster_namespace.log(pod).split()
        assert (endpoint, address) == (f"--rdzv-endpoint=127.0.0.1:{port}", "127.0.0.1") and port != "29500"


class TestQueues:
    """Kueue's words and order of events, after kubernetes-sigs/kueue/pkg/workload and pkg/scheduler."""

    def queued(self, cluster_namespace: ClusterNamespace, name: str, **spec: int) -> None:
        body = cluster_namespace.job_body("exec sleep 600", name, suspend=True, **spec)
        body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "queue"}
        cluster_namespace.batch.create_namespaced_job(cluster_namespace.namespace, body)

    def test_a_job_waits_for_its_quota_and_runs_when_it_fits(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace
    ):
        cluster.quota(cluster_namespace.namespace, "queue", pods=1)
        self.queued(cluster_namespace, "job", completions=2, parallelism=2)
        [workload] = until(lambda: cluster.all_of(WORKLOADS, cluster_namespace.namespace), "the workload")
        short = "insufficient unused quota for pods in flavor default, 1 more needed"
        message = f"couldn't assign flavors to pod set main: {short}"
        assert condition_of(workload, "QuotaReserved") == ("False", "Pending", message) and not cluster_namespace.pods()
        cluster.quota(cluster_namespace.namespace, "queue", pods=2)
        running(cluster_namespace, 2)

    def test_a_job_whose_admission_is_taken_back_is_suspended_until_there_is_room(
        self, cluster: Cluster, cluster_namespace: ClusterNamespace
    ):
        cluster.quota(cluster_namespace.namespace, "queue", pods=1)
        self.queued(cluster_namespace, "job", backoffLimit=6)
        running(cluster_namespace)
        cluster.quota(cluster_namespace.namespace, "queue", pods=0)
        cluster.preempt(cluster_namespace.namespace, "job")
        until(
            lambda: (
                cluster_namespace.read("jobs")["spec"]["suspend"]
                and not cluster_namespace.pods(field_selector="status.phase=Running")
            ),
            "it",
        )
        [workload] = cluster.all_of(WORKLOADS, cluster_namespace.namespace)
        assert condition_of(workload, "Evicted")[:2] == ("True", "Preempted") and not holds(workload, "Admitted")
        cluster.quota(cluster_namespace.namespace, "queue", pods=1)
        running(cluster_namespace)

    def test_a_missing_queue_is_named(self, cluster: Cluster, cluster_namespace: ClusterNamespace):
        self.queued(cluster_namespace, "job")
        [workload] = until(lambda: cluster.all_of(WORKLOADS, cluster_namespace.namespace), "the workload")
        assert condition_of(workload, "QuotaReserved") == ("False", "Inadmissible", "LocalQueue queue doesn't exist")
