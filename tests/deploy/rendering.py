"""The objects that the deployment's tests check: the chart's for several values, and each cluster's own."""

import functools
from collections.abc import Iterator
from typing import Any

import yaml

from slipway.deploy.cluster import render

Object = dict[str, Any]
DIGEST = "sha256:" + "0" * 64
IMAGES = {
    "platform": f"registry.example/slipway/platform@{DIGEST}",
    "trainer": f"registry.example/slipway/trainer@{DIGEST}",
}
MINIMAL: dict[str, Any] = {"images": IMAGES}
"""All required values."""
FULL: dict[str, Any] = {
    "images": {**IMAGES, "pullPolicy": "Always", "pullSecrets": ["registry"]},
    "user": 2000,
    "postgresql": {"ports": [6432], "peers": [{"ipBlock": {"cidr": "10.9.0.0/24"}}]},
    "objectStore": {
        "secret": "object-store",
        "endpoint": "https://objects.example",
        "region": "eu-1",
        "artifacts": "s3://slipway/mlflow",
        "peers": [{"ipBlock": {"cidr": "10.8.0.0/24"}}],
    },
    "volumes": {"corpora": {"claim": "slipway-corpora"}},
    "checkpoints": {"secret": "checkpoint-keys"},
    "webserver": {
        "replicas": 2,
        "readOnly": True,
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
    },
    "mlflow": {"hosts": ["mlflow.example"]},
    "dask": {"enabled": True, "secret": "slipway-dask"},
    "metrics": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "monitors": {"enabled": True, "interval": "30s", "labels": {"release": "prometheus"}},
    },
    "logs": {
        "image": f"registry.example/alloy@{DIGEST}",
        "loki": "https://loki.example/loki/api/v1/push",
        "secret": "slipway-loki",
        "peers": [{"ipBlock": {"cidr": "10.6.0.0/24"}}],
    },
    "runs": {"nodeSelector": {"pool": "cpu"}, "tolerations": [{"key": "pool", "operator": "Exists"}]},
    "platform": {
        "serving": {"image": f"registry.example/vllm@{DIGEST}", "host": "models.example"},
        "quarantine": {"apply": True, "preflight_joining": True},
        "prices": {"on_demand": 4.0, "spot": 1.5},
        "teams": {"research": {"quota": {"rank_hours": 5000}, "prices": {"on_demand": 3.0, "spot": 1.0}}},
        "notifications": {"urls_file": "/secrets/platform/urls", "quiet_hours": "22:00-07:00"},
        "openlineage": {"url": "https://marquez.example/api/v1/lineage", "key_file": "/secrets/platform/lineage"},
        "secret": "slipway-platform",
    },
    "network": {"apiServer": {"ports": [6443], "peers": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}},
}
"""Every switch on."""
INGRESS: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
IDENTITY: dict[str, Any] = {
    **MINIMAL,
    "webserver": {"from": [INGRESS]},
    "identity": {
        "secret": "slipway-identity",
        "issuer": "https://login.example",
        "hosts": {"webserver": "slipway.example", "mlflow": "mlflow.example", "serving": "models.example"},
        "operators": ["oda@x.example"],
        "promoters": ["pia@x.example"],
        "peers": [{"ipBlock": {"cidr": "10.7.0.0/24"}}],
        "ingress": {"className": "nginx", "tlsSecret": "slipway-hosts"},
    },
    "proxy": {"image": f"registry.example/oauth2-proxy@{DIGEST}", "replicas": 2},
    "dex": {"image": f"registry.example/dex@{DIGEST}", "secret": "slipway-dex", "host": "login.example"},
}
"""Single sign-on in front of every page, with an issuer of one's own."""
WITHOUT: dict[str, Any] = {
    **MINIMAL,
    "mlflow": {"enabled": False},
    "platform": {"tracking": {"uri": "https://mlflow.example"}},
    "network": {"enabled": False},
    "priorityClass": "",
}
"""Every switch off."""
VALUES = {"minimal": MINIMAL, "full": FULL, "identity": IDENTITY, "without": WITHOUT} | {
    cluster: render.values_of(cluster) for cluster in render.CLUSTERS
}


@functools.cache
def workloads(case: str) -> list[Object]:
    """The chart's objects with the values of this name. Tests share them and must not change them."""
    return parsed(render.workloads(VALUES[case]))


@functools.cache
def cluster_objects(cluster: str) -> list[Object]:
    """A cluster's own objects, as they are committed; `test_kustomize.py` shows that they are up to date."""
    return parsed((render.RENDERED / cluster / "cluster.yaml").read_text())


def parsed(text: str) -> list[Object]:
    """The objects of a text; libyaml reads them ten times faster than Python does."""
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """The objects of a kind by name; by namespace and name outside the control plane's namespace."""
    return {
        document["metadata"]["name"]
        if namespace_of(document) in ("", render.NAMESPACE)
        else "/".join(identity(document)[1:]): document
        for document in objects
        if document["kind"] == kind
    }


def namespace_of(document: Object) -> str:
    """Its namespace, empty for an object of the cluster."""
    return str(document["metadata"].get("namespace", ""))


def identity(document: Object) -> tuple[str, str, str]:
    return document["kind"], namespace_of(document), document["metadata"]["name"]


def pod_templates(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """The pods of Deployments, by the Deployment's name."""
    for name, document in of_kind(objects, "Deployment").items():
        yield name, document["spec"]["template"]


def text_of(case: str, config_map: str, file: str) -> str:
    """A file of one of the chart's ConfigMaps."""
    return str(of_kind(workloads(case), "ConfigMap")[f"{render.NAME}-{config_map}"]["data"][file])


def settings(case: str, config_map: str, file: str) -> Object:
    """A file of one of the chart's ConfigMaps, parsed."""
    return dict(yaml.safe_load(text_of(case, config_map, file)))
