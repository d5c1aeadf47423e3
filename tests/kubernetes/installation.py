"""Slipway on a cluster as docs/kubernetes.md installs it: the overlay `small`, and its webserver as people reach it.

Environment, besides KUBECONFIG: SLIPWAY_TEST_PLATFORM_IMAGE and SLIPWAY_TEST_IMAGE (the trainer's), and
SLIPWAY_TEST_POSTGRESQL, a pg_service.conf with two empty databases. The nodes carry the label slipway/fleet=small and
have the overlay's folders. The overlay's objects have names of their own, so that there is one installation at a time.
"""

import contextlib
import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg
import pytest

from slipway.deploy.cluster import render
from slipway.resources.kubernetes.objects import KubernetesObject
from tests.conftest import until
from tests.drills.graphql import LAUNCH

CONTROL, TRAINING = "slipway", "slipway-training"
OVERLAY = "small"
TOKEN = "0123456789abcdef-the-token"
HEADER = "X-Test-Person"
VIEWER, OPERATOR, PROMOTER = "vic", "oda", "pia"
PATIENCE = 900.0
REFUSED = "Refused"
"""The type of an answer of which the door before the webserver let nothing through."""
STEP = 1.0
"""Seconds between two questions to the webserver, which has 50 thousandths of a core reserved."""
STAGED = dg.AssetKey(["python_stdlib", "staged_shards"])
ENDS = ("SUCCESS", "FAILURE", "CANCELED")
Value = TypeVar("Value")
NAMED = ("KUBECONFIG", "SLIPWAY_TEST_IMAGE", "SLIPWAY_TEST_PLATFORM_IMAGE", "SLIPWAY_TEST_POSTGRESQL")
_RUN = "query Run($id: ID!) { runOrError(runId: $id) { ... on Run { status tags { key value } } } }"
_ASSET = """
query Asset($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) { ... on AssetNode { partitionKeys assetMaterializations { partition } } }
}
"""


def skip_without_what_it_needs() -> None:
    """Skip the module that is being imported where a variable is not set."""
    missing = [name for name in NAMED if not os.environ.get(name)]
    if missing:
        pytest.skip(f"nothing to install on: {', '.join(missing)} not set", allow_module_level=True)


def kubectl(*arguments: str, text: str = "") -> str:
    """What kubectl prints. Raises CalledProcessError."""
    return subprocess.run(["kubectl", *arguments], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def pods(namespace: str, selector: str) -> list[KubernetesObject]:
    """The pods of a namespace that carry the labels."""
    documents: list[KubernetesObject] = json.loads(
        kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json")
    )["items"]
    return documents


@dataclass
class Installation:
    """The chart's objects on the cluster. People are named by a header, as a proxy in front of the UI names them."""

    values: dict[str, Any] = field(default_factory=lambda: render.values_of(OVERLAY))
    url: str = ""

    def __post_init__(self) -> None:
        images = {"platform": "SLIPWAY_TEST_PLATFORM_IMAGE", "trainer": "SLIPWAY_TEST_IMAGE"}
        self.values["images"] = {name: os.environ[variable] for name, variable in images.items()}
        people = {"operators": [OPERATOR], "promoters": [PROMOTER]}
        self.values["identity"] = {"secret": "slipway-identity", "userHeader": HEADER, **people}

    def prepare(self) -> None:
        """The cluster's own objects, and the Secrets that the chart takes."""
        kubectl("apply", "-k", str(render.OVERLAYS / OVERLAY))
        database = Path(os.environ["SLIPWAY_TEST_POSTGRESQL"]).read_text()
        for name, key, value in (("postgresql", "pg_service.conf", database), ("identity", "token", TOKEN)):
            metadata = {"name": f"slipway-{name}", "namespace": CONTROL}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {key: value}}
            kubectl("apply", "-f", "-", text=json.dumps(secret))

    def apply(self) -> None:
        """Install or upgrade, and wait until every deployment has only pods of these values."""
        kubectl("apply", "-f", "-", text=render.workloads(self.values))
        kubectl("-n", CONTROL, "rollout", "status", "deployment", f"--timeout={PATIENCE:.0f}s")

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """The webserver at `url`, by a forwarded port, which lasts as long as the pod behind it."""
        command = ["kubectl", "-n", CONTROL, "port-forward", "service/slipway-webserver", ":80"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout
                line = process.stdout.readline()
                match = re.search(r"127\.0\.0\.1:(\d+)", line)
                assert match, line
                self.url = f"http://127.0.0.1:{match[1]}"
                self.until(lambda: self._knows(STAGED), "the webserver to know the code location")
                yield
            finally:
                process.kill()

    def materialize(self, assets: Sequence[dg.AssetKey], partition: str = "") -> str:
        """Ask for a run that materialises assets; returns its id."""
        selection = [{"path": list(key.path)} for key in assets]
        tags = [{"key": "dagster/partition", "value": partition}] if partition else []
        answer = self._launched(OPERATOR, {"jobName": "__ASSET_JOB", "assetSelection": selection}, {}, tags)
        return str(answer["run"]["runId"])

    def launched(self, person: str, job: str, ops: Mapping[str, Any]) -> dict[str, Any]:
        """What the webserver answers a person who launches a job."""
        return self._launched(person, {"jobName": job}, {"ops": dict(ops)}, [])

    def status(self, run: str) -> str:
        return str(self._ask(OPERATOR, _RUN, {"id": run})["runOrError"]["status"])

    def until(self, condition: Callable[[], Value], what: str) -> Value:
        """The first true value of what is asked of the webserver, in steps that leave a small one time to work."""

        def attempt() -> Value | None:
            time.sleep(STEP)
            with contextlib.suppress(OSError):  # it does not listen yet, or is too busy to answer
                return condition()
            return None

        value = until(attempt, what, PATIENCE)
        assert value
        return value

    def end(self, run: str) -> str:
        """Wait for the end of a run; its status."""
        return self.until(lambda: (status := self.status(run)) in ENDS and status, f"the end of run {run}") or ""

    def until_succeeded(self, run: str) -> None:
        """Wait for the end of a run. Fails when it does not succeed."""
        assert self.end(run) == "SUCCESS", run

    def partitions(self, asset: dg.AssetKey) -> list[str]:
        """The partitions of an asset."""
        return list(self._asset(asset)["partitionKeys"])

    def materialized(self, asset: dg.AssetKey) -> list[str]:
        """The partitions of an asset's materialisations, the newest first."""
        return [materialization["partition"] for materialization in self._asset(asset)["assetMaterializations"]]

    def _knows(self, asset: dg.AssetKey) -> bool:
        return "partitionKeys" in self._asset(asset)

    def _asset(self, asset: dg.AssetKey) -> dict[str, Any]:
        node: dict[str, Any] = self._ask(OPERATOR, _ASSET, {"key": {"path": list(asset.path)}})["assetNodeOrError"]
        return node

    def _launched(self, person: str, job: Mapping[str, Any], config: Mapping[str, Any], tags: Any) -> dict[str, Any]:
        selector = {"repositoryLocationName": "slipway", "repositoryName": "__repository__", **job}
        params = {"selector": selector, "runConfigData": config, "executionMetadata": {"tags": tags}}
        payload: dict[str, Any] = self._ask(person, LAUNCH, {"params": params})
        return dict(payload.get("launchRun") or {"__typename": REFUSED})

    def _ask(self, person: str, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}", HEADER: person}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/graphql", body, headers), timeout=60) as answer:
            data: dict[str, Any] | None = json.load(answer)["data"]
        return data or {}


def remove() -> None:
    """Everything that was installed, without the folders on the nodes."""
    kubectl("delete", "-k", str(render.OVERLAYS / OVERLAY), "--ignore-not-found", f"--timeout={PATIENCE:.0f}s")
    kinds = "clusterroles,clusterrolebindings"
    kubectl("delete", kinds, "-l", "app.kubernetes.io/instance=slipway", "--ignore-not-found")
