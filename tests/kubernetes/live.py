"""A real cluster for tests: the one that KUBECONFIG names, in a namespace of its own, with any image that has Slipway.

Environment: SLIPWAY_TEST_IMAGE, SLIPWAY_TEST_PULL_POLICY (Never for an image that was loaded by hand) and
SLIPWAY_TEST_POD_PATCH, a patch of the pods' template as JSON or the path of a file with that.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import (
    CONFIG_MAPS,
    JOB,
    NODES,
    PODS,
    KubernetesObject,
    Resource,
    holding_conditions,
)
from slipway.resources.launchers.kubernetes import access
from slipway.resources.launchers.kubernetes.network import NETWORK_POLICIES
from tests.conftest import until

NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")


@dataclass(frozen=True)
class Live:
    """The cluster, and the tests' namespace in it."""

    client: Client
    cluster: Cluster

    def ready_nodes(self) -> list[str]:
        nodes = self.client.list(NODES, {})
        return sorted(node["metadata"]["name"] for node in nodes if "Ready" in holding_conditions(node))

    def running(self) -> list[KubernetesObject]:
        """The pods that have not ended."""
        return [pod for pod in self.client.list(PODS, {}) if pod["status"].get("phase") not in ("Succeeded", "Failed")]

    def until_gone(self) -> None:
        """Wait until no pod runs in the namespace."""
        until(lambda: not self.running(), "the pods to end")

    def clear(self) -> None:
        """Remove all jobs at once, also running ones."""
        for order in self.client.listing(CONFIG_MAPS, JOB).items:
            self.client.delete(CONFIG_MAPS, order["metadata"]["name"])
        for pod in self.client.list(PODS, {}):
            self.client.delete(PODS, pod["metadata"]["name"], grace_seconds=1)
        kinds = [PODS, *(kind for kind in access.created_kinds() if self.client.serves(kind))]
        until(lambda: not any(self.client.listing(kind, JOB).items for kind in kinds), "all that belongs to jobs to go")


def allow_names(client: Client) -> None:
    """Let jobs' pods ask the DNS, as the chart does: a job's own policy leaves only its pods to one another."""
    port: KubernetesObject = {"port": 53}
    egress = [{"ports": [{**port, "protocol": protocol} for protocol in ("UDP", "TCP")]}]
    own = {"matchExpressions": [{"key": JOB, "operator": "Exists"}]}
    spec = {"podSelector": own, "policyTypes": ["Egress"], "egress": egress}
    if client.get(NETWORK_POLICIES, "dns") is None:
        client.create(NETWORK_POLICIES, _named(NETWORK_POLICIES, "dns") | {"spec": spec})


def skip_without_a_cluster() -> None:
    """Skip the test, or the module that is being imported."""
    if not os.environ.get("KUBECONFIG") or not os.environ.get("SLIPWAY_TEST_IMAGE"):
        reason = "no cluster to test on: KUBECONFIG and SLIPWAY_TEST_IMAGE are not both set"
        pytest.skip(reason, allow_module_level=True)


def connected() -> Live:
    """The cluster of the environment, with a namespace's name and no namespace yet; skips where there is none."""
    skip_without_a_cluster()
    kubeconfig, image = os.environ["KUBECONFIG"], os.environ["SLIPWAY_TEST_IMAGE"]
    namespace = f"slipway-test-{uuid.uuid4().hex[:8]}"
    policy: Any = os.environ.get("SLIPWAY_TEST_PULL_POLICY", "IfNotPresent")
    cluster = Cluster(image=image, namespace=namespace, pull_policy=policy, patch=_patch(), grace_seconds=60)
    return Live(Client(kubeconfig, namespace=namespace), cluster)


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """The cluster, with the namespace and the objects that trainings' pods need in it."""
    with furnished(connected()) as cluster_under_test:
        yield cluster_under_test
    name = cluster_under_test.client.namespace
    until(lambda: cluster_under_test.client.get(NAMESPACES, name) is None, f"namespace {name} to go")


@contextlib.contextmanager
def furnished(cluster_under_test: Live) -> Iterator[Live]:
    """Make the namespace and the objects that pods need in it; remove it afterwards."""
    name = cluster_under_test.client.namespace
    # Slipway's pods pass "restricted"; a patch that mounts an image's missing files (hostPath) may not.
    level = "privileged" if cluster_under_test.cluster.patch else "restricted"
    labels = {"pod-security.kubernetes.io/enforce": level}
    cluster_under_test.client.create(
        NAMESPACES, _named(NAMESPACES, name) | {"metadata": {"name": name, "labels": labels}}
    )
    try:
        cluster_under_test.client.create(
            SERVICE_ACCOUNTS, _named(SERVICE_ACCOUNTS, cluster_under_test.cluster.service_account)
        )
        yield cluster_under_test
    finally:
        cluster_under_test.client.delete(NAMESPACES, name)


def _named(resource: Resource, name: str) -> KubernetesObject:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}


def _patch() -> dict[str, Any]:
    text = os.environ.get("SLIPWAY_TEST_POD_PATCH", "{}")
    patch: dict[str, Any] = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    return patch
