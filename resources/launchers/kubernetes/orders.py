"""The order, which is the job object on Kubernetes: a ConfigMap with the job and its cancellation. Pure.

The order outlives the workload and owns all objects of the job. So a cancelled job stays cancelled, whatever a
controller or a queue does, and deleting the order removes everything.
"""

import math
from dataclasses import dataclass
from typing import Any

from slipway.resources.kubernetes.objects import CONFIG_MAPS, KubernetesObject, time_seconds
from slipway.resources.launchers import document
from slipway.resources.launchers.kubernetes import pods
from slipway.resources.launchers.protocol import Job
from slipway.trainer.base import atomic, parsing

JOB_FILE = "job.json"
CANCELLED_AT = "slipway/cancelled-at"
GRACE_SECONDS = "slipway/grace-seconds"
"""Annotations of a cancelled order: the time in seconds since the epoch, and the grace period of its pods."""


@dataclass(frozen=True)
class Cancellation:
    """The first `cancel` of a job. Times are seconds since the epoch."""

    at: float
    grace_seconds: float

    @property
    def deadline(self) -> float:
        return self.at + self.grace_seconds

    def grace_left(self, now: float) -> int:
        """In whole seconds, at least one, since with 0 the API server would drop pods that still run."""
        return max(1, math.ceil(self.deadline - now))


@dataclass(frozen=True)
class JobOrder:
    """An order as it is on the cluster."""

    name: str
    """The name of all objects of the job."""
    uid: str
    version: str
    job: dict[str, Any]
    """The job as a document of `slipway.resources.launchers.document`."""
    submitted_at: float | None
    """Seconds since the epoch."""
    cancellation: Cancellation | None


def written(name: str, job: Job) -> KubernetesObject:
    """The order of a job, to be created. Raises ValueError if the job's config is not JSON."""
    job_document = document.of(job)
    files = {JOB_FILE: job_document, pods.CONFIG_FILE: job_document["config"]}
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": pods.metadata(name, job),
        "immutable": True,
        "data": {file: atomic.canonical_json(content).decode() for file, content in files.items()},
    }


def read(config_map: KubernetesObject) -> JobOrder:
    """The order in a ConfigMap. Raises ValueError if the ConfigMap is not an order."""
    metadata = config_map["metadata"]
    if JOB_FILE not in config_map.get("data", {}):
        raise ValueError(
            f"ConfigMap {metadata['name']}: found no {JOB_FILE}, expected the order of a job; remove the ConfigMap, or "
            "give it another name"
        )
    return JobOrder(
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        job=parsing.value(config_map["data"][JOB_FILE]),
        submitted_at=time_seconds(metadata["creationTimestamp"]),
        cancellation=_cancellation(metadata.get("annotations", {})),
    )


def cancelled(order: JobOrder, cancellation: Cancellation) -> KubernetesObject:
    """The patch that cancels the order. The API server rejects it if the order has changed meanwhile."""
    annotations = {CANCELLED_AT: str(cancellation.at), GRACE_SECONDS: str(cancellation.grace_seconds)}
    return {"metadata": {"resourceVersion": order.version, "annotations": annotations}}


def owned(part: KubernetesObject, order: JobOrder) -> KubernetesObject:
    """An object of the job, owned by the order, so that it is removed with the order."""
    owner = {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "name": order.name,
        "uid": order.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }
    return part | {"metadata": part["metadata"] | {"ownerReferences": [owner]}}


def belongs(part: KubernetesObject, order: JobOrder) -> bool:
    """Whether this order owns an object, and not an earlier order with the same name that is being removed."""
    return order.uid in {owner["uid"] for owner in part["metadata"].get("ownerReferences", [])}


def _cancellation(annotations: dict[str, str]) -> Cancellation | None:
    if CANCELLED_AT not in annotations:
        return None
    return Cancellation(float(annotations[CANCELLED_AT]), float(annotations[GRACE_SECONDS]))
