"""Planted secrets in what leaves the platform: events of lineage, messages to people, and what is told of an incident.

What is left on disk, exports and the search in logs among it, is scanned in `test_planted_secrets.py`, what is served
in `test_shown_secrets.py`.
"""

import json
import time
from pathlib import Path

import pytest

from slipway.resources.daily_report import page, reading, text
from slipway.resources.daily_report.report import report
from slipway.resources.notify.courier import NoticeCourier
from slipway.resources.notify.notices import Notice
from slipway.resources.notify.outbox import Outbox
from slipway.resources.notify.settings import NoticeKind, NotificationSettings
from slipway.resources.openlineage.events import TrainingEvents
from slipway.resources.trainings import incident_reports
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.diagnosis import collection
from slipway.trainer.diagnosis.collection import DiagnosedNode
from slipway.trainer.record import causes, fence, incidents
from slipway.trainer.record.incidents import IncidentRecord
from tests.resources.notify import servers

KEY, SECRET = "c0ffee5ec2e7" * 5 + "beef", "PLANTED-0fd2"
VARIABLES = ("AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD", "HF_TOKEN", "OTEL_EXPORTER_OTLP_HEADERS")


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingStore:
    """A training with a key for its checkpoints that was interrupted, in a process whose environment has secrets."""
    for variable in VARIABLES:
        monkeypatch.setenv(variable, SECRET)
    key_file = tmp_path / "secrets" / "key"
    key_file.parent.mkdir()
    key_file.write_text(KEY)
    policy = RunPolicy(1, 1, 1, 60.0, 3, operation={"storage": {"key_file": str(key_file)}})
    store = Trainings(tmp_path / "durable" / "trainings").propose(Specification("tiny", {}, "0" * 64, "1" * 64), policy)
    store.want("run", "test", "the test wants it")
    assert store.claim(1, ("node-0",), "first start", "test")
    fence.commit(store.folder, fence.Commit(5, fence.Token(1), "checkpoints/5", "0" * 64, {"loss": 1.0}, time.time()))
    fault = IncidentRecord("000001.0000", causes.KILLED, "rank 0 was killed", "restarted", "test", time.time(), 5)
    assert incidents.note(store.folder, fault)
    node = DiagnosedNode(store.folder, "node-0", None, (tmp_path,), lambda: b"step 5/10 loss 1.0\n")
    assert collection.collect(node, fault.id, fault.reason, 1.0)
    store.record_exit(1, "failed", "rank 0 was killed", "test", ("node-0",))
    return store


def holding(folder: Path) -> set[str]:
    """The files below a folder that hold a secret."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.name for path in files if any(secret.encode() in path.read_bytes() for secret in (KEY, SECRET))}


def secrets_in(*texts: str) -> list[str]:
    return [secret for secret in (KEY, SECRET) if any(secret in text for text in texts)]


def test_the_evidence_of_an_incident_and_all_that_is_told_of_it_hold_no_secret(failed: TrainingStore, tmp_path: Path):
    evidence = incidents.evidence(failed.folder, "000001.0000")
    assert {path.name for path in evidence.rglob("*")} >= {"manifest.json", "log.txt", "health.txt"}
    [incident_report] = incident_reports.of(failed, failed.read())
    now = time.time()
    night = report(reading.read_facts(tmp_path / "durable", now - 3600, now))
    page.write(night, tmp_path / "pages" / "morning.html")
    written = (tmp_path / "pages" / "morning.html").read_text()
    assert failed.id in written
    assert (
        secrets_in(
            written, text.digest(night), incident_reports.post_mortem(failed, incident_report), repr(incident_report)
        )
        == []
    )
    assert holding(tmp_path) == {"key"}


def test_events_of_lineage_hold_no_secret(failed: TrainingStore):
    events = TrainingEvents(failed.read(), fence.claims(failed.folder), lambda: "texts").but([])
    events_text = json.dumps([event for _, event in events])
    assert failed.id in events_text and "checkpoint" in events_text and secrets_in(events_text) == []


def test_the_address_of_a_notice_is_in_no_file_and_no_problem(failed: TrainingStore, tmp_path: Path):
    outbox = Outbox.of(tmp_path / "durable")
    with servers.webhook() as hook:
        hook.status = 403
        urls = tmp_path / "secrets" / "urls"
        urls.write_text(f"json://me:{SECRET}@127.0.0.1:{hook.port}/{KEY}\nslack://{SECRET}\n")
        settings = NotificationSettings(urls_file=str(urls), group_seconds=0.0)
        courier = NoticeCourier(outbox)
        courier.deliver(settings, patience=30.0)  # from now on, each endpoint is told
        assert outbox.note(Notice("1", NoticeKind.PERSON, "tiny: it failed", "What happened: it failed", time.time()))
        problems = courier.deliver(settings, patience=30.0)
    assert any("its server answered 403" in problem for problem in problems) and secrets_in(*problems) == []
    assert holding(tmp_path) == {"key", "urls"}
