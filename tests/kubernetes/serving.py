"""What serves on a cluster, in the tests: settings, versions, and the files that hold their objects."""

import dataclasses
from pathlib import Path

import yaml

from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import KubernetesObject
from slipway.resources.serving import objects
from slipway.resources.serving.settings import ServingSettings
from slipway.serving.records import ServedVersion

CLUSTER = Cluster(image="registry.example/trainer@sha256:0123", volumes={"/durable": "slipway-durable"})
IMAGE, FRONT_IMAGE = "registry.example/vllm@sha256:0123", "registry.example/platform@sha256:0123"
SETTINGS = ServingSettings(image=IMAGE, front_image=FRONT_IMAGE, host="models.example", priority="slipway-serving")
LARGE = dataclasses.replace(SETTINGS, nodes=2, tensor_parallel=8)
QUEUED = dataclasses.replace(SETTINGS, scaler="keda", prometheus="http://prometheus.monitoring.svc:9090")
VERSION = ServedVersion("3", "ab" * 32, "serving/slipway-tiny/models/abab", "cd" * 32)
CASES = {
    "serving-version": lambda: objects.of_version("slipway-tiny", VERSION, SETTINGS, CLUSTER, "/durable"),
    "serving-groups": lambda: objects.of_version("slipway-tiny", VERSION, LARGE, CLUSTER, "/durable"),
    "serving-keda": lambda: objects.of_version("slipway-tiny", VERSION, QUEUED, CLUSTER, "/durable"),
    "serving-front": lambda: objects.of_front(SETTINGS, CLUSTER, "/durable"),
}
FILES = {name: Path(__file__).parent / "golden_serving" / f"{name}.yaml" for name in CASES}


def of(name: str) -> list[KubernetesObject]:
    """What a case creates."""
    return [document for _, document in CASES[name]()]


def text(name: str) -> str:
    """What a case's file holds."""
    return yaml.safe_dump_all(of(name), sort_keys=True, width=120)


if __name__ == "__main__":
    for name, path in FILES.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text(name))
