"""The rendezvous store of a job: a small pod of its own and a Service that names it, for all kinds of workload. Pure.

The order owns both. The pod is no pod of the job: its label has another value, so that no status, no anti-affinity and
no Service of the job takes it for one. It prefers nodes outside the fleet, or needs those that the settings name.
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
"""Its port."""
CONTAINER = "store"
REQUESTS, LIMITS = {"cpu": "100m", "memory": "512Mi"}, {"cpu": "1", "memory": "1Gi"}
"""It imports torch, which takes 300 MiB and the processor for a moment, and holds some addresses."""
LEFT_SECONDS = 120
"""How long it waits for supervisors that were killed together: their pods are replaced. They say when they leave for
good."""
COPIED_FIELDS = (
    "automountServiceAccountToken",
    "enableServiceLinks",
    "imagePullSecrets",
    "securityContext",
    "serviceAccountName",
)
"""What it takes over from the pods of the job."""
OUTSIDE_THE_FLEET = 100
"""Weight of the preference for nodes that no training runs on."""


def name_of(name: str) -> str:
    """The name of the store's objects, from that of the job's objects; also its host name."""
    return f"{name}-store"


def is_needed(job: Job) -> bool:
    """Whether a job has a store: a lone rank meets no other."""
    return not job.is_lone


def endpoint(name: str, job: Job) -> str:
    """``HOST:PORT`` at which the ranks of the job meet; a lone rank asks nobody."""
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
    """Away from the fleet where there are other nodes; a fleet without labels cannot be distinguished from the rest."""
    if cluster.store_node_selector or not cluster.node_selector:
        return {}
    other_nodes = [
        {"key": key, "operator": "NotIn", "values": [value]} for key, value in sorted(cluster.node_selector.items())
    ]
    preferred = [
        {"weight": OUTSIDE_THE_FLEET, "preference": {"matchExpressions": [expression]}} for expression in other_nodes
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
