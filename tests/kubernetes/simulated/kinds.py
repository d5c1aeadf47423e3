"""The kinds of object that the cluster serves, and what differs between them."""

from typing import Any

from slipway.resources.kubernetes.objects import CONFIG_MAPS, EVENTS, JOBS, NODES, PODS, SERVICES, Resource
from slipway.resources.launchers.kubernetes.network import NETWORK_POLICIES
from slipway.resources.launchers.kubernetes.queues import LOCAL_QUEUES, POD_GROUPS, WORKLOADS
from slipway.resources.launchers.kubernetes.workloads.jobset import JOB_SETS
from slipway.resources.launchers.kubernetes.workloads.pytorch_job import PYTORCH_JOBS
from slipway.resources.launchers.kubernetes.workloads.train_job import TRAIN_JOBS, TRAINING_RUNTIMES
from slipway.resources.serving.objects import (
    BUDGETS,
    DEPLOYMENTS,
    INGRESSES,
    LEADER_WORKER_SETS,
    SCALED_OBJECTS,
    SCALERS,
)

Object = dict[str, Any]
"""One object as JSON. Those in the store are never changed in place."""

NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")
VOLUMES = Resource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
CLAIMS = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
PRIORITIES = Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)

SERVING = (DEPLOYMENTS, SCALERS, BUDGETS, INGRESSES)
"""Kinds of which only the objects are kept: no controller makes pods of them here."""
BUILT_IN = (
    *(CONFIG_MAPS, EVENTS, JOBS, NAMESPACES, NODES, PODS, PRIORITIES, SERVICES, SERVICE_ACCOUNTS, VOLUMES, CLAIMS),
    NETWORK_POLICIES,
    *SERVING,
)
ADD_ONS: dict[str, tuple[Resource, ...]] = {
    "jobset": (JOB_SETS,),
    "lws": (LEADER_WORKER_SETS,),
    "keda": (SCALED_OBJECTS,),
    "kueue": (LOCAL_QUEUES, WORKLOADS),
    "trainer": (TRAIN_JOBS, TRAINING_RUNTIMES),
    "training-operator": (PYTORCH_JOBS,),
    "volcano": (POD_GROUPS,),
}
"""The kinds of CustomResourceDefinitions, by the project that installs them."""

WITHOUT_STATUS = {CONFIG_MAPS, EVENTS, SERVICE_ACCOUNTS, PRIORITIES, LOCAL_QUEUES, TRAINING_RUNTIMES, NETWORK_POLICIES}
"""Kinds whose objects have no status."""
WITHOUT_GENERATION = {CONFIG_MAPS, EVENTS, NAMESPACES, NODES, SERVICES, SERVICE_ACCOUNTS, VOLUMES, CLAIMS}
"""Kinds whose `metadata.generation` the API server does not keep."""

__all__ = [
    "ADD_ONS",
    "BUILT_IN",
    "CLAIMS",
    "CONFIG_MAPS",
    "EVENTS",
    "JOBS",
    "JOB_SETS",
    "LOCAL_QUEUES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "POD_GROUPS",
    "PRIORITIES",
    "PYTORCH_JOBS",
    "SERVICES",
    "SERVICE_ACCOUNTS",
    "TRAINING_RUNTIMES",
    "TRAIN_JOBS",
    "VOLUMES",
    "WITHOUT_GENERATION",
    "WITHOUT_STATUS",
    "WORKLOADS",
    "Object",
    "Resource",
]


def qualified(resource: Resource) -> str:
    """A kind as messages name it: ``jobs.batch``, ``pods``."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
