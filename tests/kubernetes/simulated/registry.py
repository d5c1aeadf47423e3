"""Reading and writing objects with the rules of the API server: k8s.io/apiserver/pkg/registry/generic/registry."""

import copy
import secrets
import uuid
from collections.abc import Callable
from typing import Any

from tests.kubernetes.simulated import clock, deletion, errors, validation
from tests.kubernetes.simulated.defaults import fill_in
from tests.kubernetes.simulated.kinds import (
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    WITHOUT_GENERATION,
    WITHOUT_STATUS,
    Object,
    Resource,
)
from tests.kubernetes.simulated.patches import patched
from tests.kubernetes.simulated.store import Store

SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated names, without vowels: k8s.io/apimachinery/pkg/util/rand."""
KEPT_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "namespace")
"""Metadata that no client changes."""


class Registry:
    """Every method raises KubernetesError with the API server's answer."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        stored = self.store.get(resource, namespace, name)
        if stored is None:
            raise errors.not_found(resource, name)
        return stored

    def create(self, resource: Resource, namespace: str, document: Object) -> Object:
        object = copy.deepcopy(document)
        metadata = object.setdefault("metadata", {})
        if "generateName" in metadata and not metadata.get("name"):
            metadata["name"] = metadata["generateName"][:58] + "".join(secrets.choice(SUFFIX) for _ in range(5))
        if resource.namespaced:
            metadata["namespace"] = namespace
            self._admit(resource, object)
        validation.check_new(resource, object)
        if self.store.get(resource, namespace, metadata["name"]):
            raise errors.already_exists(resource, metadata["name"])
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": clock.now()}
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(field, None)
        if resource not in WITHOUT_GENERATION:
            metadata["generation"] = 1
        if resource not in WITHOUT_STATUS:
            object["status"] = object.get("status", {}) if resource in WITHOUT_GENERATION else {}
        object |= {"apiVersion": resource.api_version, "kind": resource.kind}
        fill_in(resource, object)
        return self.store.put(resource, object)

    def update(self, resource: Resource, namespace: str, name: str, document: Object, subresource: str = "") -> Object:
        """Replace an object, or its status alone. An update that changes nothing writes nothing."""
        before = self.get(resource, namespace, name)
        version = document["metadata"].get("resourceVersion")
        if version and version != before["metadata"]["resourceVersion"]:
            raise errors.modified(resource, name)
        if document["metadata"].get("uid", before["metadata"]["uid"]) != before["metadata"]["uid"]:
            raise errors.conflict(
                resource, name, f"Precondition failed: UID in precondition: {document['metadata']['uid']}"
            )
        after = _merged(resource, before, document, subresource)
        if subresource != "status":
            validation.check_changed(resource, before, after)
        if after == before:
            return before
        if deletion.is_over(after):
            return self.store.remove(resource, after)
        return self.store.put(resource, after)

    def change(self, resource: Resource, object: Object, how: Callable[[Object], object]) -> Object:
        """Let `how` change the current object in place, spec and status alike: what controllers and kubelets do."""
        metadata = object["metadata"]
        before = self.get(resource, metadata.get("namespace", ""), metadata["name"])
        after = copy.deepcopy(before)
        how(after)
        if after == before:
            return before
        if resource not in WITHOUT_GENERATION and after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        return self.store.remove(resource, after) if deletion.is_over(after) else self.store.put(resource, after)

    def patch(
        self, resource: Resource, namespace: str, name: str, content_type: str, patch: Any, subresource: str = ""
    ) -> Object:
        before = self.get(resource, namespace, name)
        after = patched(resource, before, content_type, patch)
        return self.update(resource, namespace, name, after, subresource)

    def delete(self, resource: Resource, namespace: str, name: str, options: Object | None = None) -> Object:
        """Delete an object, or mark it to be deleted once its grace is over and its finalizers are gone."""
        before, options = self.get(resource, namespace, name), options or {}
        deletion.check_preconditions(resource, before, options)
        after = deletion.marked(resource, before, options)
        if deletion.is_over(after):
            return self.store.remove(resource, after)
        return self.store.put(resource, after) if after != before else before

    def _admit(self, resource: Resource, object: Object) -> None:
        """The admission plugins NamespaceLifecycle and ServiceAccount."""
        namespace, name = object["metadata"]["namespace"], object["metadata"].get("name", "")
        namespace_object = self.store.get(NAMESPACES, "", namespace)
        if namespace_object is None:
            raise errors.not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in namespace_object["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise errors.refused(resource, name, why)
        if resource == PODS:
            account = object["spec"].get("serviceAccountName") or "default"
            if self.store.get(SERVICE_ACCOUNTS, namespace, account) is None:
                why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
                raise errors.refused(resource, name, why)


def _merged(resource: Resource, before: Object, document: Object, subresource: str) -> Object:
    """The fields kept from the object before, and the given ones: only the subresource changes a status."""
    if subresource == "status":
        return {**before, "status": copy.deepcopy(document.get("status", {})), "metadata": dict(before["metadata"])}
    after = copy.deepcopy(document) | {"apiVersion": resource.api_version, "kind": resource.kind}
    if resource not in WITHOUT_STATUS:
        after["status"] = before.get("status", {})
    metadata_before = {key: before["metadata"][key] for key in KEPT_FIELDS if key in before["metadata"]}
    metadata = {key: value for key, value in after["metadata"].items() if key not in KEPT_FIELDS}
    after["metadata"] = {**metadata, **metadata_before, "name": before["metadata"]["name"]}
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
    if "generation" in metadata_before and after.get("spec") != before.get("spec"):
        after["metadata"]["generation"] += 1
    return after
