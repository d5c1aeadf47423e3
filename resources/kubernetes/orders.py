"""The job object on Kubernetes: a ConfigMap that says what was ordered, and whether that was cancelled. Pure.

It outlives the workload that does the work and owns all that belongs to the job. So a cancelled job stays cancelled
whatever a controller or a queue does, and deleting the order removes everything.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

from resources.kubernetes import pods
from resources.kubernetes.objects import CONFIG_MAPS, Object
from resources.kubernetes.workloads import conditions
from resources.launcher import document
from resources.launcher.protocol import Job
from trainer import atomic

JOB_FILE = "job.json"
CANCELLED_AT, GRACE_SECONDS = "slipway/cancelled-at", "slipway/grace-seconds"
"""Annotations of a cancelled order: when, seconds since the epoch, and what its pods get to end in."""


@dataclass(frozen=True)
class Cancellation:
    """What the first `cancel` asked for. Times are seconds since the epoch."""

    at: float
    grace_seconds: float

    @property
    def deadline(self) -> float:
        return self.at + self.grace_seconds

    def grace_left(self, now: float) -> int:
        """In whole seconds, and one at least: none would tell the API server to forget pods that still run."""
        return max(1, math.ceil(self.deadline - now))


@dataclass(frozen=True)
class Order:
    """An order as it stands."""

    name: str
    """Of all objects of the job."""
    uid: str
    version: str
    job: dict[str, Any]
    """The job as `resources.launcher.document` has it."""
    submitted_at: float | None
    """Seconds since the epoch."""
    cancellation: Cancellation | None


def written(name: str, job: Job) -> Object:
    """The order of a job, to be created. Raises ValueError when its config is no JSON."""
    wanted = document.of(job)
    files = {JOB_FILE: wanted, pods.CONFIG_FILE: wanted["config"]}
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": pods.metadata(name, job),
        "immutable": True,
        "data": {file: atomic.canonical_json(content).decode() for file, content in files.items()},
    }


def read(found: Object) -> Order:
    """The order that an object is. Raises ValueError when it is somebody else's."""
    metadata = found["metadata"]
    if JOB_FILE not in found.get("data", {}):
        raise ValueError(f"ConfigMap {metadata['name']} is not the order of a job, and stands where one would be")
    return Order(
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        job=json.loads(found["data"][JOB_FILE]),
        submitted_at=conditions.seconds(metadata["creationTimestamp"]),
        cancellation=_cancellation(metadata.get("annotations", {})),
    )


def cancelled(order: Order, cancellation: Cancellation) -> Object:
    """The change that cancels the order, unless it has changed meanwhile."""
    annotations = {CANCELLED_AT: str(cancellation.at), GRACE_SECONDS: str(cancellation.grace_seconds)}
    return {"metadata": {"resourceVersion": order.version, "annotations": annotations}}


def owned(part: Object, order: Order) -> Object:
    """An object of the job as one that goes when the order goes."""
    owner = {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "name": order.name,
        "uid": order.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }
    return part | {"metadata": part["metadata"] | {"ownerReferences": [owner]}}


def belongs(part: Object, order: Order) -> bool:
    """Whether an object is this order's, and not of an earlier one of the same name that is being removed."""
    return order.uid in {owner["uid"] for owner in part["metadata"].get("ownerReferences", [])}


def _cancellation(annotations: dict[str, str]) -> Cancellation | None:
    if CANCELLED_AT not in annotations:
        return None
    return Cancellation(float(annotations[CANCELLED_AT]), float(annotations[GRACE_SECONDS]))
