"""Planted secrets: what a user hands to Slipway as a secret is found nowhere but in the file that holds it.

Everything that a small platform leaves is scanned, byte by byte: Dagster's and MLflow's databases, event logs, failed
runs, artefacts, records of trainings, jobs, backups, and what the webserver gets of the definitions.
"""

import base64
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap

from slipway.assets import keys
from slipway.assets.exporting import Exporting
from slipway.definitions import build
from slipway.operations.metadata_backup import tier_of
from slipway.resources import metadata_backup
from slipway.resources.mlflow.tracking import PASSWORD, USER, Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import logs
from slipway.resources.trainings.store import WorkQueue
from tests.sensors.platform import TINY, Platform

SECRET = "PLANTED-0fd2"
KEY = "c0ffee5ec2e7" * 5 + "beef"


class Refuses(http.server.BaseHTTPRequestHandler):
    """An MLflow that answers each request with an error, or hangs up, and keeps who asked it."""

    logins: ClassVar[set[str]] = set()
    hangs_up: ClassVar[bool] = False

    def do_GET(self) -> None:
        self.logins.add(self.headers.get("Authorization", ""))
        if self.hangs_up:
            self.connection.close()
            return
        self.send_response(403)
        self.end_headers()
        self.wfile.write(b'{"error_code": "PERMISSION_DENIED", "message": "no"}')

    do_POST = do_GET  # noqa: N815

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving.server_address[1]
        serving.shutdown()


@pytest.fixture
def guarded(tracked: Platform, server: int, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform whose MLflow wants a password, with a backup tier and recipes."""
    for name in (USER, PASSWORD):
        monkeypatch.setenv(name, "")  # set back afterwards
    monkeypatch.setenv("SLIPWAY_RECIPES", str(tracked.root / "recipes"))
    secrets = tracked.root / "secrets"
    secrets.mkdir()
    (secrets / "uri").write_text(f"http://me:{SECRET}@127.0.0.1:{server}\n")
    (secrets / "key").write_text(f"{KEY}\n")
    (tracked.root / "notifications.yaml").write_text("slipway: notifications/1\nurls_file: secrets/urls\n")
    (secrets / "urls").write_text(f"json://me:{SECRET}@127.0.0.1:{server}/{KEY}\n")
    (tracked.root / "backup").mkdir()
    tracked.resources["tracking"] = Tracking(uri_file=str(secrets / "uri"))
    tracked.resources["tiers"] = Tiers(
        durable=str(tracked.home.durable), nvme=tracked.home.nvme, backup=str(tracked.root / "backup")
    )
    tracked.repository = build(tracked.recipes, tracked.resources).get_repository_def()
    return tracked


def files_with(root: Path, *texts: str) -> set[str]:
    """The files below a folder that hold one of these texts."""
    encoded = [text.encode() for text in texts]
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)) for path in files if any(text in path.read_bytes() for text in encoded)}


def test_mlflow_is_told_the_password_and_nobody_else(guarded: Platform, monkeypatch: pytest.MonkeyPatch):
    candidate = keys.key(TINY, "candidate")
    store = guarded.finished(WorkQueue.TRACKING)
    reason = str(guarded.tick("metrics_shipping").skip_message)
    assert (
        reason.startswith(f"{store.id}: its metrics and artefacts are not all delivered yet") and SECRET not in reason
    )
    login = base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert f"Basic {login}" in Refuses.logins
    for hangs_up in (False, True):
        monkeypatch.setattr(Refuses, "hangs_up", hangs_up)
        assert not guarded.materialize([candidate], store.id).success
    guarded.queue(dg.RunRequest(asset_selection=[candidate], tags={"dagster/partition": store.id}))
    back_up(guarded)
    assert list((guarded.root / "backup").rglob("notifications.yaml")), "the backup has the settings of notifications"
    assert files_with(guarded.root, SECRET, login) == {"secrets/uri", "secrets/urls"}


def back_up(platform: Platform) -> None:
    """Back up Dagster's databases, which hold the failed runs."""
    figures = metadata_backup.Figures(runs=0, experiments=0, models=0, recipes=0)
    tier = tier_of(platform.tiers)
    recipes = platform.root / "recipes"
    metadata_backup.back_up(platform.root / "dagster", platform.tracking, recipes, figures, tier, 1.0)
    assert list((platform.root / "backup").rglob("*.db"))


def test_the_webserver_is_told_no_secret(guarded: Platform):
    snapshot = dg.serialize_value(RepositorySnap.from_def(guarded.repository))
    assert TINY in snapshot and SECRET not in snapshot and KEY not in snapshot


@pytest.mark.slow
def test_a_key_of_checkpoints_is_only_in_its_file(guarded: Platform):
    store = guarded.start_training(
        "encrypted", run={"steps": 4}, storage={"key_file": str(guarded.root / "secrets" / "key")}
    )
    guarded.advance(store)
    assert store.commits() and guarded.tick("checkpoint_arrivals").asset_events
    exported, lines = guarded.root / "exported", list[str]()
    commit = max(store.commits(), key=lambda commit: commit.step)
    Exporting(guarded.tiers, guarded.compute, lines.append).write(
        commit, store.run_policy(), exported, None, "bf16", 1 << 30
    )
    assert (exported / "config.json").exists()
    sources = logs.sources(store, guarded.compute.launcher())
    assert logs.merged(sources) and logs.merged(sources, grep=KEY) == []
    assert files_with(guarded.root, KEY) == {"secrets/key", "secrets/urls"}
