"""The TrainJob controller (kubeflow/trainer, v2): a JobSet of the runtime's template, with torchrun's variables."""

import copy
from collections.abc import Iterable

from tests.kubernetes.simulated import pods
from tests.kubernetes.simulated.controllers import Key, Manager, own_or_owned, reference_to
from tests.kubernetes.simulated.indexes import INDEX
from tests.kubernetes.simulated.kinds import JOB_SETS, TRAIN_JOBS, TRAINING_RUNTIMES, Object
from tests.kubernetes.simulated.store import Change

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""Label of the replicated Job that gets a TrainJob's own settings."""
CONTAINER = "node"
COMPONENT = "trainjob-controller"


class TrainJobs:
    def __init__(self, manager: Manager) -> None:
        self._registry, self._store, self._events = manager.registry, manager.store, manager.events

    def keys(self, change: Change) -> Iterable[Key]:
        return own_or_owned(change, TRAIN_JOBS, [JOB_SETS])

    def sync(self, key: Key) -> None:
        train_job = self._store.get(TRAIN_JOBS, *key)
        if train_job is None or "deletionTimestamp" in train_job["metadata"]:
            return
        if not _is_finished(train_job):
            self._keep(train_job)
        job_set = self._store.get(JOB_SETS, *key)
        self._registry.change(TRAIN_JOBS, train_job, lambda it: _write_status(it, job_set))

    def _keep(self, train_job: Object) -> None:
        namespace, name = train_job["metadata"]["namespace"], train_job["metadata"]["name"]
        suspend = bool(train_job["spec"].get("suspend"))
        if job_set := self._store.get(JOB_SETS, namespace, name):
            self._registry.change(JOB_SETS, job_set, lambda it: it["spec"].update(suspend=suspend))
            return
        reference = train_job["spec"]["runtimeRef"]["name"]
        runtime = self._store.get(TRAINING_RUNTIMES, namespace, reference)
        if runtime is None:
            why = f'TrainingRuntime.trainer.kubeflow.org "{reference}" not found'
            message = f"TrainJob resources reconciliation failed: {why}"
            self._events.warning(train_job, "TrainJobResourcesCreationFailed", message, COMPONENT)
            return
        self._registry.create(JOB_SETS, namespace, job_set_of(train_job, runtime))


def job_set_of(train_job: Object, runtime: Object) -> Object:
    template = copy.deepcopy(runtime["spec"]["template"])
    metadata = {**(template.get("metadata") or {}), "name": train_job["metadata"]["name"]}
    metadata["ownerReferences"] = [reference_to(train_job)]
    job_set: Object = {"metadata": metadata, "spec": template["spec"]}
    job_set["spec"]["suspend"] = bool(train_job["spec"].get("suspend"))
    for replicated in job_set["spec"]["replicatedJobs"]:
        if (replicated["template"].get("metadata", {}).get("labels") or {}).get(STEP) == "trainer":
            _train(train_job, runtime, replicated["template"]["spec"])
    return job_set


def _train(train_job: Object, runtime: Object, job: Object) -> None:
    """A TrainJob's trainer, and what the torch policy adds (pkg/runtime/framework/plugins/torch)."""
    trainer, policy = train_job["spec"].get("trainer") or {}, runtime["spec"].get("mlPolicy") or {}
    nodes = trainer.get("numNodes") or policy.get("numNodes") or 1
    job |= {"parallelism": nodes, "completions": nodes}
    for container in job["template"]["spec"]["containers"]:
        if container["name"] == CONTAINER:
            container |= {key: trainer[key] for key in ("image", "command", "args") if key in trainer}
            torch = _torch(train_job, nodes) if "torch" in policy else []
            container["env"] = [*container.get("env", ()), *trainer.get("env", ()), *torch]


def _torch(train_job: Object, nodes: int) -> list[Object]:
    name, trainer = train_job["metadata"]["name"], train_job["spec"].get("trainer") or {}
    values = {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(trainer.get("numProcPerNode", 1)),
        "PET_MASTER_ADDR": f"{name}-{CONTAINER}-0-0.{name}",
        "PET_MASTER_PORT": "29500",
    }
    rank = {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}}
    return [*({"name": key, "value": value} for key, value in values.items()), rank]


def _is_finished(train_job: Object) -> bool:
    return pods.is_true(train_job, "Complete") or pods.is_true(train_job, "Failed")


def _write_status(train_job: Object, job_set: Object | None) -> None:
    """The conditions of the JobSet with its reasons and messages, and its counts."""
    if train_job["spec"].get("suspend"):
        pods.set_condition(train_job, "Suspended", "True", "Suspended", "TrainJob is suspended")
    elif pods.is_true(train_job, "Suspended"):
        pods.set_condition(train_job, "Suspended", "False", "Resumed", "TrainJob is resumed")
    if job_set is None:
        return
    for job_set_type, train_job_type in (("Completed", "Complete"), ("Failed", "Failed")):
        if pods.is_true(job_set, job_set_type):
            condition = pods.condition(job_set, job_set_type)
            assert condition
            pods.set_condition(train_job, train_job_type, "True", condition["reason"], condition["message"])
    if statuses := job_set["status"].get("replicatedJobsStatus"):
        train_job["status"]["jobsStatus"] = statuses
