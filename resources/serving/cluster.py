"""Serving on a cluster: create the objects for the versions that should serve, and delete all other serving objects.

Level-triggered: each call compares, creates missing objects, and deletes unneeded ones once their running requests have
had time to finish. An object that was deleted by hand is created again. Changed settings are applied to existing
objects; other changes by an autoscaler or a person stay.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import KubernetesObject, Resource
from slipway.resources.serving import objects
from slipway.resources.serving.objects import DRAIN_SECONDS, KINDS, LEADER_WORKER_SETS, SCALED_OBJECTS, SCALERS, SERVES
from slipway.resources.serving.settings import ServingSettings
from slipway.serving.records import ServingRecords
from slipway.trainer.base import parsing

APPLIED = "slipway/applied"
"""The annotation with the last applied specification, as JSON."""
AT_ONCE = (SCALERS, SCALED_OBJECTS)
"""The kinds that are deleted at once. They handle no requests, and two autoscalers of the same pods do not work."""
_unwanted_since: dict[tuple[Resource, str], float] = {}
"""When each object (kind, name) was first unneeded, in this process."""


class ClusterServing:
    """vLLM for each version that serves or will serve, and the front."""

    precision: ClassVar[str] = "bf16"

    def __init__(self, client: Client, cluster: Cluster, settings: ServingSettings | None) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings

    @property
    def image(self) -> str:
        """The platform's image. Raises ValueError if the settings are missing."""
        return self._known.front_image

    @property
    def _known(self) -> ServingSettings:
        if self._settings is None:
            raise ValueError("compute.serving: found nothing, expected how models are served on this cluster")
        return self._settings

    def ensure(self, records: ServingRecords) -> None:
        """Bring the cluster's objects to the desired state. Raises Unavailable, and ValueError for missing settings."""
        required = self._required(records, self._known)
        for resource in self._kinds(self._known):
            present = {item["metadata"]["name"]: item for item in self._client.list(resource, {})}
            present = {name: item for name, item in present.items() if _is_ours(item)}
            for name, document in required.get(resource, {}).items():
                _unwanted_since.pop((resource, name), None)
                if name not in present:
                    self._client.create(resource, _noted(document))
                else:
                    change = change_of(present[name], document)
                    if change:
                        self._client.patch(resource, name, change)
            for name in present.keys() - required.get(resource, {}).keys():
                if resource in AT_ONCE or self._is_over(resource, name):
                    self._client.delete(resource, name, present[name]["metadata"]["uid"])

    def _required(
        self, records: ServingRecords, settings: ServingSettings
    ) -> dict[Resource, dict[str, KubernetesObject]]:
        """The required objects, by kind and name."""
        required: list[tuple[Resource, KubernetesObject]] = []
        durable = str(records.durable)
        for model in records.models():
            state = records.state(model)
            versions = {version.checkpoint: version for version in (state.settled, state.coming) if version}
            for version in versions.values():
                required += objects.of_version(model, version, settings, self._cluster, durable)
        if required:
            required += objects.of_front(settings, self._cluster, durable)
        by_kind: dict[Resource, dict[str, KubernetesObject]] = {}
        for resource, document in required:
            by_kind.setdefault(resource, {})[document["metadata"]["name"]] = document
        return by_kind

    def _kinds(self, settings: ServingSettings) -> Iterator[Resource]:
        """The kinds to check, including those of earlier settings, without kinds that the cluster does not have."""
        needed = {LEADER_WORKER_SETS: settings.nodes > 1, SCALED_OBJECTS: settings.scaler == "keda"}
        for kind in KINDS:
            if needed.get(kind, True) or self._client.serves(kind):
                yield kind

    def _is_over(self, resource: Resource, name: str) -> bool:
        """Whether the running requests of an unneeded object have had time to finish."""
        return time.monotonic() - _unwanted_since.setdefault((resource, name), time.monotonic()) > DRAIN_SECONDS


def _is_ours(document: KubernetesObject) -> bool:
    """Whether Slipway created the object. Objects that an operator creates for ours, such as KEDA's autoscalers, may
    have the same labels."""
    owners = document["metadata"].get("ownerReferences", [])
    return SERVES in document["metadata"].get("labels", {}) and not any(owner.get("controller") for owner in owners)


def change_of(present: KubernetesObject, required: KubernetesObject) -> KubernetesObject:
    """The merge patch (RFC 7386) that updates an object; empty if the same specification was applied before.

    It compares with the last applied specification, since the server adds defaults to the present one. It never changes
    the number of pods, which the autoscaler sets.
    """
    sent = _sent(present["metadata"].get("annotations", {}).get(APPLIED, ""))
    if sent == required["spec"]:
        return {}
    changes = _merge(sent, required["spec"])
    changes.pop("replicas", None)
    return {"metadata": {"annotations": _noted(required)["metadata"]["annotations"]}, "spec": changes}


def _sent(note: str) -> dict[str, Any]:
    """The last applied specification from an annotation; empty if it is invalid."""
    try:
        document = parsing.value(note)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _merge(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        if isinstance(value, dict) and isinstance(before.get(key), dict):
            patch[key] = _merge(before[key], value)
        elif value != before.get(key):
            patch[key] = value
    return patch


def _noted(document: KubernetesObject) -> KubernetesObject:
    """The object with its specification in an annotation."""
    metadata = document["metadata"]
    sent = json.dumps(document["spec"], sort_keys=True)
    return {**document, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), APPLIED: sent}}}
