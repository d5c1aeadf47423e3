"""The PyTorchJob controller (kubeflow/training-operator, v1.9): a pod and a Service of one name for every replica."""

import copy
from collections.abc import Iterable, Iterator

from tests.kubernetes.simulated import clock, pods
from tests.kubernetes.simulated.controllers import Key, Manager, own_or_owned, owned_by, reference_to
from tests.kubernetes.simulated.kinds import PODS, PYTORCH_JOBS, SERVICES, Object
from tests.kubernetes.simulated.store import Change

PREFIX = "training.kubeflow.org"
PORT = 23456
COMPONENT = "pytorchjob-controller"


class PyTorchJobs:
    def __init__(self, manager: Manager) -> None:
        self._registry, self._store, self._events = manager.registry, manager.store, manager.events

    def keys(self, change: Change) -> Iterable[Key]:
        return own_or_owned(change, PYTORCH_JOBS, [PODS])

    def sync(self, key: Key) -> None:
        job = self._store.get(PYTORCH_JOBS, *key)
        if job is None or "deletionTimestamp" in job["metadata"]:
            return
        if not is_finished(job):
            self._told_creation(job)
            if is_suspended(job):
                self._delete(owned_by(self._store, PODS, job))
            else:
                self._keep(job)
        job_pods = owned_by(self._store, PODS, job)
        after = self._registry.change(PYTORCH_JOBS, job, lambda it: _write_status(it, job_pods))
        if is_finished(after):
            self._clean(after, job_pods)

    def _told_creation(self, job: Object) -> None:
        message = f"PyTorchJob {job['metadata']['name']} is created."
        if not pods.condition(job, "Created"):
            how = lambda it: pods.set_condition(it, "Created", "True", "PyTorchJobCreated", message)  # noqa: E731
            self._registry.change(PYTORCH_JOBS, job, how)

    def _keep(self, job: Object) -> None:
        namespace = job["metadata"]["namespace"]
        for pod in pods_of(job):
            name = pod["metadata"]["name"]
            if not self._store.get(SERVICES, namespace, name):
                self._registry.create(SERVICES, namespace, _service(pod))
            if not self._store.get(PODS, namespace, name):
                self._registry.create(PODS, namespace, pod)
                self._events.normal(job, "SuccessfulCreatePod", f"Created pod: {name}", COMPONENT)

    def _clean(self, job: Object, job_pods: list[Object]) -> None:
        """`cleanPodPolicy`: of a job that has ended, no pod (None), those that run, or all are deleted."""
        policy = job["spec"]["runPolicy"].get("cleanPodPolicy", "None")
        if policy != "None":
            self._delete([pod for pod in job_pods if policy == "All" or pods.phase(pod) in ("Running", "Pending")])

    def _delete(self, pods_to_delete: list[Object]) -> None:
        for pod in pods_to_delete:
            namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            if "deletionTimestamp" not in pod["metadata"]:
                self._registry.delete(PODS, namespace, name)
            if self._store.get(SERVICES, namespace, name):
                self._registry.delete(SERVICES, namespace, name)


def is_finished(job: Object) -> bool:
    return pods.is_true(job, "Succeeded") or pods.is_true(job, "Failed")


def is_suspended(job: Object) -> bool:
    return bool(job["spec"]["runPolicy"].get("suspend"))


def pods_of(job: Object) -> Iterator[Object]:
    """One for each replica: ``<job>-<type>-<index>``, the master first."""
    name, replicas = job["metadata"]["name"], job["spec"]["pytorchReplicaSpecs"]
    for kind in [candidate for candidate in ("Master", "Worker") if candidate in replicas]:
        for index in range(replicas[kind].get("replicas", 1)):
            pod = copy.deepcopy(replicas[kind]["template"])
            metadata = pod.setdefault("metadata", {})
            labels = {"job-name": name, "replica-type": kind.lower(), "replica-index": str(index)}
            labels["operator-name"] = COMPONENT
            marks = {f"{PREFIX}/{key}": value for key, value in labels.items()}
            metadata["labels"] = {**(metadata.get("labels") or {}), **marks}
            metadata |= {"name": f"{name}-{kind.lower()}-{index}", "ownerReferences": [reference_to(job)]}
            pod["spec"]["restartPolicy"] = replicas[kind].get("restartPolicy", "OnFailure")
            for container in pod["spec"]["containers"]:
                container["env"] = [*container.get("env", ()), *_environment(job, kind, index)]
            yield pod


def _environment(job: Object, kind: str, index: int) -> list[Object]:
    """Rank and world of pods, not of processes; where to meet only when there is a master (pkg/.../envvar.go)."""
    replicas = job["spec"]["pytorchReplicaSpecs"]
    size = sum(replica.get("replicas", 1) for replica in replicas.values())
    values = {"PYTHONUNBUFFERED": "1", "PET_NNODES": str(size), "PET_NPROC_PER_NODE": "auto"}
    if "Master" in replicas:
        rank = str(index if kind == "Master" else index + 1)
        master = f"{job['metadata']['name']}-master-0"
        for prefix in ("", "PET_"):
            values |= {f"{prefix}MASTER_ADDR": master, f"{prefix}MASTER_PORT": str(PORT)}
        values |= {"WORLD_SIZE": str(size), "RANK": rank, "PET_NODE_RANK": rank}
    return [{"name": name, "value": value} for name, value in values.items()]


def _service(pod: Object) -> Object:
    """Headless, of the pod's own name."""
    metadata = pod["metadata"]
    selector = {key: value for key, value in metadata["labels"].items() if key.startswith(PREFIX)}
    spec = {"clusterIP": "None", "selector": selector, "ports": [{"name": "pytorchjob-port", "port": PORT}]}
    return {"metadata": {"name": metadata["name"], "ownerReferences": metadata["ownerReferences"]}, "spec": spec}


def _write_status(job: Object, job_pods: list[Object]) -> None:
    status, kinds = job["status"], job["spec"]["pytorchReplicaSpecs"]
    if is_finished(job):
        return
    status["replicaStatuses"] = {kind: _counts(kind, job_pods) for kind in kinds}
    if is_suspended(job):
        pods.set_condition(job, "Suspended", "True", "PyTorchJobSuspended", f"PyTorchJob {_name(job)} is suspended.")
        pods.set_condition(job, "Running", "False", "PyTorchJobSuspended", f"PyTorchJob {_name(job)} is suspended.")
        status.pop("startTime", None)
        return
    if pods.is_true(job, "Suspended"):
        pods.set_condition(job, "Suspended", "False", "PyTorchJobResumed", f"PyTorchJob {_name(job)} is resumed.")
    status.setdefault("startTime", clock.now())
    _conclude(job, kinds)


def _conclude(job: Object, kinds: Object) -> None:
    """The first worker decides over success, or the master where there is one; any failure fails the job."""
    counts, qualified_name = job["status"]["replicaStatuses"], f"PyTorchJob {job['metadata']['namespace']}/{_name(job)}"
    for kind in kinds:
        if failed := counts[kind].get("failed", 0):
            limit = f"Job {_name(job)} has failed because it has reached the specified backoff limit"
            failures = f"PyTorchJob {_name(job)} is failed because {failed} {kind} replica(s) failed."
            _end(job, "Failed", limit if "backoffLimit" in job["spec"]["runPolicy"] else failures)
            return
    leader = "Master" if "Master" in kinds else "Worker"
    if counts[leader].get("succeeded", 0) == kinds[leader].get("replicas", 1):
        _end(job, "Succeeded", f"{qualified_name} successfully completed.")
    elif any(count.get("active", 0) for count in counts.values()):
        pods.set_condition(job, "Running", "True", "PyTorchJobRunning", f"{qualified_name} is running.")


def _end(job: Object, type: str, message: str) -> None:
    if running := pods.condition(job, "Running"):
        pods.set_condition(job, "Running", "False", running["reason"], running["message"])
    pods.set_condition(job, type, "True", f"PyTorchJob{type}", message)
    job["status"]["completionTime"] = clock.now()


def _name(job: Object) -> str:
    return str(job["metadata"]["name"])


def _counts(kind: str, job_pods: list[Object]) -> dict[str, int]:
    replica_pods = [pod for pod in job_pods if pod["metadata"]["labels"][f"{PREFIX}/replica-type"] == kind.lower()]
    phases = [pods.phase(pod) for pod in replica_pods]
    counts = {
        "active": phases.count("Running"),
        "succeeded": phases.count("Succeeded"),
        "failed": phases.count("Failed"),
    }
    return {state: count for state, count in counts.items() if count}
