"""Planted secrets in what is made for those who ask: a scrape of metrics, served pages, and the objects of a job.

What is left on disk is scanned in `test_planted_secrets.py`.
"""

import json
from pathlib import Path
from typing import NoReturn

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from slipway.operations.metrics.serve import PlatformExporter, PlatformSources
from slipway.resources.errors import Unavailable
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.launchers.kubernetes import network, orders
from slipway.resources.launchers.kubernetes.names import object_name
from slipway.resources.launchers.kubernetes.workloads import KINDS
from slipway.resources.mlflow.tracking import PASSWORD
from slipway.resources.pages.routes import routes
from slipway.resources.trainings.job import Paths, job
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore

KEY, SECRET = "c0ffee5ec2e7" * 5 + "beef", "PLANTED-0fd2"


@pytest.fixture
def encrypted(tmp_path: Path) -> TrainingStore:
    """A training that encrypts its checkpoints and whose first incarnation has begun."""
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    policy = RunPolicy(1, 1, 1, 60.0, 3, operation={"storage": {"key_file": str(key_file)}})
    store = Trainings(tmp_path / "durable" / "trainings").propose(Specification("tiny", {}, "0" * 64, ""), policy)
    store.want("run", "test", "the test wants it")
    assert store.claim(1, ("node-0",), "first start", "test")
    return store


def secrets_in(*texts: str) -> list[str]:
    """Which of the secrets are in these texts."""
    return [secret for secret in (KEY, SECRET) if any(secret in text for text in texts)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_objects_of_a_job_name_the_file_of_a_key_and_hold_no_secret(
    encrypted: TrainingStore, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
):
    for name in ("AWS_SECRET_ACCESS_KEY", PASSWORD):
        monkeypatch.setenv(name, SECRET)
    started = job(encrypted.read(), Paths(tmp_path / "durable", "/nvme", "s3://backup"), "a revision", "a run")
    name, cluster = object_name(started.name), Cluster(image="slipway-trainer:test")
    parts = [*network.parts(name, started, cluster), *KINDS[kind].objects(name, started, cluster)]
    objects_text = json.dumps([orders.written(name, started), *parts])
    assert str(tmp_path / "key") in objects_text
    assert secrets_in(objects_text) == []


def away() -> NoReturn:
    raise Unavailable("the cluster is away")


def test_a_scrape_of_metrics_and_the_pages_show_no_secret(encrypted: TrainingStore, tmp_path: Path):
    views = PlatformSources(tmp_path / "durable", {}, away, away)
    scraped = PlatformExporter(views, None, jobs=True).text()
    assert encrypted.id in scraped
    served = TestClient(Starlette(routes=routes(tmp_path / "durable", lambda: {})))
    answers = [served.get(f"/slipway{path}") for path in ("", "/health", "/morning", f"/trainings/{encrypted.id}")]
    assert encrypted.id in answers[0].text and [answer.status_code for answer in answers] == [200] * 4
    assert secrets_in(scraped, *(answer.text for answer in answers)) == []
