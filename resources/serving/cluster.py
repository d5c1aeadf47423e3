"""Serving on a cluster: the objects of what the records want are there, and no others that serve.

Level-triggered: each call compares, creates what is missing, and deletes what is no longer wanted once what was under
way there has had its time. Whoever deletes an object by hand gets it back. Settings that change are brought to the
objects that are there; what an autoscaler, or somebody by hand, has changed elsewhere in them stays.
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
"""Annotation: the specification as it was last sent, as JSON."""
AT_ONCE = (SCALERS, SCALED_OBJECTS)
"""Kinds that no answer is under way at: of two autoscalers of the same pods, neither works."""
_unwanted_since: dict[tuple[Resource, str], float] = {}
"""By kind and name of objects, when they were first seen to be wanted no more; kept in this process alone."""


class ClusterServing:
    """vLLM for each version that answers or is to, and the front."""

    precision: ClassVar[str] = "bf16"

    def __init__(self, client: Client, cluster: Cluster, settings: ServingSettings | None) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings

    @property
    def image(self) -> str:
        """The platform's image. Raises ValueError for settings that lack."""
        return self._known.front_image

    @property
    def _known(self) -> ServingSettings:
        if self._settings is None:
            raise ValueError("compute.serving: found nothing, expected how models are served on this cluster")
        return self._settings

    def ensure(self, records: ServingRecords) -> None:
        """Bring the cluster's objects to what is wanted. Raises Unavailable, and ValueError for settings that lack."""
        required = self._required(records, self._known)
        for resource in self._kinds(self._known):
            present = {item["metadata"]["name"]: item for item in self._client.list(resource, {})}
            present = {name: item for name, item in present.items() if _is_ours(item)}
            for name, document in required.get(resource, {}).items():
                _unwanted_since.pop((resource, name), None)
                if name not in present:
                    self._client.create(resource, _noted(document))
                elif change := change_of(present[name], document):
                    self._client.patch(resource, name, change)
            for name in present.keys() - required.get(resource, {}).keys():
                if resource in AT_ONCE or self._is_over(resource, name):
                    self._client.delete(resource, name, present[name]["metadata"]["uid"])

    def _required(
        self, records: ServingRecords, settings: ServingSettings
    ) -> dict[Resource, dict[str, KubernetesObject]]:
        """The objects that should be there, by kind and name."""
        required: list[tuple[Resource, KubernetesObject]] = []
        durable = str(records.durable)
        for model in records.models():
            state = records.state(model)
            for version in {
                served_version.checkpoint: served_version
                for served_version in (state.settled, state.coming)
                if served_version
            }.values():
                required += objects.of_version(model, version, settings, self._cluster, durable)
        if required:
            required += objects.of_front(settings, self._cluster, durable)
        by_kind: dict[Resource, dict[str, KubernetesObject]] = {}
        for resource, document in required:
            by_kind.setdefault(resource, {})[document["metadata"]["name"]] = document
        return by_kind

    def _kinds(self, settings: ServingSettings) -> Iterator[Resource]:
        """The kinds to look at, those of earlier settings too; what operators bring may be unknown to the cluster."""
        needed = {LEADER_WORKER_SETS: settings.nodes > 1, SCALED_OBJECTS: settings.scaler == "keda"}
        for kind in KINDS:
            if needed.get(kind, True) or self._client.serves(kind):
                yield kind

    def _is_over(self, resource: Resource, name: str) -> bool:
        """Whether what was under way at an object has had its time."""
        return time.monotonic() - _unwanted_since.setdefault((resource, name), time.monotonic()) > DRAIN_SECONDS


def _is_ours(document: KubernetesObject) -> bool:
    """Whether this process makes the object: what an operator makes for one of ours may have its labels (KEDA's
    autoscalers have)."""
    owners = document["metadata"].get("ownerReferences", [])
    return SERVES in document["metadata"].get("labels", {}) and not any(owner.get("controller") for owner in owners)


def change_of(present: KubernetesObject, required: KubernetesObject) -> KubernetesObject:
    """The merge patch (RFC 7386) that makes an object what is wanted; empty where the same was sent before.

    Compared is what was sent, not what is there: the server adds its defaults. The number of pods is the autoscaler's.
    """
    sent = _sent(present["metadata"].get("annotations", {}).get(APPLIED, ""))
    if sent == required["spec"]:
        return {}
    changes = _merge(sent, required["spec"])
    changes.pop("replicas", None)
    return {"metadata": {"annotations": _noted(required)["metadata"]["annotations"]}, "spec": changes}


def _sent(note: str) -> dict[str, Any]:
    """What was sent before, by our note on the object; nothing where others have written over it."""
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
    """The object with its specification as an annotation."""
    metadata = document["metadata"]
    sent = json.dumps(document["spec"], sort_keys=True)
    return {**document, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), APPLIED: sent}}}
