"""A namespace of a cluster, real or simulated, which tests read and write with the official client."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client

from tests.conftest import until

Object = dict[str, Any]
GROUPS = {"jobsets": ("jobset.x-k8s.io", "v1alpha2"), "pytorchjobs": ("kubeflow.org", "v1")}
GROUPS |= dict.fromkeys(("trainjobs", "trainingruntimes"), ("trainer.kubeflow.org", "v1alpha1"))
ENDS = ("Complete", "Completed", "Succeeded", "Failed")


@dataclasses.dataclass(frozen=True)
class ClusterNamespace:
    """A namespace of a cluster, read through the official client; objects are JSON documents."""

    api: client.ApiClient
    namespace: str
    image: str

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    @property
    def batch(self) -> client.BatchV1Api:
        return client.BatchV1Api(self.api)

    def json(self, answer: Any) -> Object:
        document: Object = self.api.sanitize_for_serialization(answer)
        return document

    def config_map(self, name: str, **metadata: object) -> Object:
        body = {"metadata": {"name": name, **metadata}, "data": {"key": "value"}}
        return self.json(self.core.create_namespaced_config_map(self.namespace, body))

    def config_maps(self) -> set[str]:
        return {config_map.metadata.name for config_map in self.core.list_namespaced_config_map(self.namespace).items}

    def job(self, script: str, name: str = "job", **spec: Any) -> Object:
        return self.json(self.batch.create_namespaced_job(self.namespace, self.job_body(script, name, **spec)))

    def job_body(self, script: str, name: str = "job", **spec: Any) -> Object:
        size = {"completionMode": "Indexed", "completions": 1, "parallelism": 1, "backoffLimit": 0}
        return {"metadata": {"name": name}, "spec": {**size, "template": self.template(script), **spec}}

    def template(self, script: str, **spec: Any) -> Object:
        container = {"name": "main", "image": self.image, "command": ["sh", "-c", script]}
        container["terminationMessagePolicy"] = "FallbackToLogsOnError"
        return {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}

    def pod(self, script: str, name: str = "pod", **spec: Any) -> Object:
        body = {"metadata": {"name": name}, **self.template(script, **spec)}
        return self.json(self.core.create_namespaced_pod(self.namespace, body))

    def read_pod(self, name: str = "pod") -> Object:
        return self.json(self.core.read_namespaced_pod(name, self.namespace))

    def pods(self, **filters: str) -> list[Object]:
        return list(self.json(self.core.list_namespaced_pod(self.namespace, **filters))["items"])

    def custom(self, plural: str, body: Object) -> Object:
        group, version = GROUPS[plural]
        body_with_version = {"apiVersion": f"{group}/{version}", **body}
        api = client.CustomObjectsApi(self.api)
        if f"{group}/{version}" not in self._versions():
            pytest.skip(f"the cluster has no {plural}.{group}")
        document: Object = api.create_namespaced_custom_object(
            group, version, self.namespace, plural, body_with_version
        )
        return document

    def _versions(self) -> set[str]:
        groups = client.ApisApi(self.api).get_api_versions().groups
        return {version.group_version for group in groups for version in group.versions}

    def read(self, plural: str, name: str = "job") -> Object:
        if plural == "jobs":
            return self.json(self.batch.read_namespaced_job(name, self.namespace))
        custom = client.CustomObjectsApi(self.api)
        document: Object = custom.get_namespaced_custom_object(*GROUPS[plural], self.namespace, plural, name)
        return document

    def ended(self, plural: str = "jobs", name: str = "job") -> Object:
        def over() -> Object | None:
            document = self.read(plural, name)
            return document if any(holds(document, end) for end in ENDS) else None

        document = until(over, f"the end of {plural} {name}")
        assert document
        return document

    def log(self, pod: Object, **options: int) -> str:
        """The raw bytes: the client would return the text of their representation."""
        name = pod["metadata"]["name"]
        answer = self.core.read_namespaced_pod_log(name, self.namespace, _preload_content=False, **options)
        return str(answer.data.decode())


def condition(object: Object, type: str) -> Object:
    """Empty where there is no such condition."""
    conditions = [
        candidate for candidate in object.get("status", {}).get("conditions") or () if candidate["type"] == type
    ]
    return conditions[0] if conditions else {}


def holds(object: Object, type: str) -> bool:
    return condition(object, type).get("status") == "True"


def condition_of(object: Object, type: str) -> tuple[str, str, str]:
    status_condition = condition(object, type)
    return status_condition.get("status", ""), status_condition.get("reason", ""), status_condition.get("message", "")


def refusal(call: Callable[..., object], *arguments: object, **named: object) -> Object:
    """The document with which the API server refuses."""
    with pytest.raises(client.ApiException) as refused:
        call(*arguments, **named)
    document: Object = json.loads(refused.value.body)
    return document


def holding(object: Object, type: str) -> Object:
    """The object, or an empty one while the condition does not hold."""
    return object if holds(object, type) else {}


def holds_not(object: Object, type: str) -> Object:
    """The object, or an empty one until the condition is False."""
    return object if condition(object, type).get("status") == "False" else {}
