"""The rendezvous store of a job: a small pod of its own and a Service for it, for all kinds of workload. Pure.

The order owns both. The pod has another value of the job label, so that the job's status, anti-affinity and Service do
not include it. It prefers nodes outside the fleet, or requires the nodes that the settings select.
"""

from typing import Any

from slipway.resources.kubernetes import objects
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import JOB, NAME, PODS, SERVICES, KubernetesObject
from slipway.resources.launchers.kubernetes import placement
from slipway.resources.launchers.protocol import Job
from slipway.resources.launchers.torchrun import is_supervised
from slipway.trainer.elastic.rendezvous_store import LEFT_VARIABLE, PORT_VARIABLE

PORT = 29500
CONTAINER = "store"
REQUESTS = {"cpu": "100m", "memory": "512Mi"}
LIMITS = {"cpu": "1", "memory": "1Gi"}
"""The resources of the store. It imports torch, which takes 300 MiB and some CPU time, and holds a few addresses."""
LEFT_SECONDS = 120
"""How long the store waits if all supervisors were killed, since their pods are replaced. A supervisor that leaves for
good tells the store."""
COPIED_FIELDS = (
    "automountServiceAccountToken",
    "enableServiceLinks",
    "imagePullSecrets",
    "securityContext",
    "serviceAccountName",
)
"""The fields that it copies from the pods of the job."""
OUTSIDE_THE_FLEET = 100
"""The weight of the preference for nodes outside the fleet."""


def name_of(name: str) -> str:
    """The name of the store's objects, and its host name, from the name of the job's objects."""
    return f"{name}-store"


def is_needed(job: Job) -> bool:
    """Whether a job needs a store. A single rank does not."""
    return not job.is_lone


def endpoint(name: str, job: Job) -> str:
    """The rendezvous address ``HOST:PORT`` of the job; a placeholder for a single rank."""
    return f"{name_of(name)}:{PORT}" if is_needed(job) else "localhost:0"


def parts(name: str, job: Job, cluster: Cluster, pod: KubernetesObject) -> list[KubernetesObject]:
    """The Service and the pod, to be created before the workload; `pod` is the template of the job's pods."""
    if not is_needed(job):
        return []
    labels = {**pod["metadata"]["labels"], JOB: name_of(name)}
    metadata: KubernetesObject = {"name": name_of(name), "labels": labels, "annotations": {NAME: job.name}}
    of_pod = {**metadata, "annotations": {**metadata["annotations"], **placement.STAYS}}
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB: name_of(name)}}
    return [
        objects.of(SERVICES, metadata, service),
        objects.of(PODS, of_pod, _spec(job, cluster, pod["spec"])),
    ]


def _spec(job: Job, cluster: Cluster, pod_spec: KubernetesObject) -> KubernetesObject:
    fields = {
        **{field: pod_spec[field] for field in COPIED_FIELDS if field in pod_spec},
        "affinity": _affinity(cluster),
        "containers": [_container(job, cluster)],
        "nodeSelector": dict(cluster.store_node_selector),
        "priorityClassName": cluster.priority,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": cluster.grace_seconds,
        "tolerations": placement.tolerations(cluster),
    }
    return {field: value for field, value in fields.items() if value not in ({}, [], "")}


def _container(job: Job, cluster: Cluster) -> KubernetesObject:
    wait_variables = {LEFT_VARIABLE: str(LEFT_SECONDS)} if is_supervised(job) else {}
    environment = {PORT_VARIABLE: str(PORT), "PYTHONUNBUFFERED": "1", **wait_variables}
    return {
        "name": CONTAINER,
        "image": cluster.image,
        "imagePullPolicy": cluster.pull_policy,
        "command": ["python", "-P", "-m", "slipway.trainer.elastic.rendezvous_store"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": {"requests": REQUESTS, "limits": LIMITS},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _affinity(cluster: Cluster) -> dict[str, Any]:
    """The preference for nodes outside the fleet; empty for a fleet without labels, which cannot be distinguished."""
    if cluster.store_node_selector or not cluster.node_selector:
        return {}
    other_nodes = [
        {"key": key, "operator": "NotIn", "values": [value]} for key, value in sorted(cluster.node_selector.items())
    ]
    preferred = [
        {"weight": OUTSIDE_THE_FLEET, "preference": {"matchExpressions": [expression]}} for expression in other_nodes
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
