"""Notifications: what happens is noted once, sent once, and also after the process was another one."""

from pathlib import Path

import pytest

from slipway.definitions import build
from slipway.resources.fleet.health.register import NodeRegister
from slipway.resources.fleet.health.standing import NodeRecord, Standing
from slipway.resources.notify.outbox import Outbox
from slipway.resources.notify.settings import NoticeKind, NotificationSettings
from slipway.resources.trainings.store import WorkQueue
from slipway.sensors.support import observation_cache
from slipway.trainer.record import causes
from tests.conftest import until
from tests.resources.notify import servers
from tests.sensors.platform import BY, Platform


@pytest.fixture
def settings(platform: Platform, tmp_path: Path) -> NotificationSettings:
    """A platform that tells what happens to the addresses in a file, at once."""
    settings = NotificationSettings(urls_file=str(tmp_path / "urls"), group_seconds=0.0)
    platform.repository = build(platform.recipes, platform.resources, notifications=settings).get_repository_def()
    return settings


def noted(platform: Platform) -> list[tuple[NoticeKind, str]]:
    return [(entry.notice.kind, entry.notice.title) for entry in Outbox.of(platform.home.durable).noted()]


def test_what_happens_to_trainings_and_nodes_reaches_a_webhook_once(platform: Platform, settings: NotificationSettings):
    with servers.webhook() as hook:
        Path(settings.urls_file).write_text(hook.webhook)
        platform.apply("notifications")
        store = platform.start_training("failing")
        assert store.claim(1, ("node-0",), "first start", BY)
        store.record_exit(1, "failed", "model: found 3 heads", BY, ("node-0",), kind=causes.CONFIGURATION)
        store.want("stop", "job watch", "it would fail again", by_platform=True)
        now = store.exit().at  # type: ignore[union-attr]
        record = NodeRecord("node-1", 1, Standing.REPAIR, Standing.DIAGNOSING, "preflight", "Xid 79", now)
        assert NodeRegister(platform.home.durable).add(record)
        platform.apply("incidents")
        for _ in range(2):
            platform.apply("notifications")
            observation_cache._memories.clear()  # as in another process
        until(lambda: hook.messages, "a message")
        platform.apply("notifications")
        text = "\n".join(message["message"] for message in hook.messages)
        assert text.count("model: found 3 heads, after step 0") == 1 and text.count("Xid 79") == 1
        assert sorted(kind for kind, _ in noted(platform)) == [NoticeKind.PERSON, NoticeKind.PERSON]
        assert platform.trainings.pending(WorkQueue.NOTICES) == []


def test_a_training_that_is_finished_is_reported(platform: Platform, settings: NotificationSettings):
    Path(settings.urls_file).write_text("json://127.0.0.1:1/x")
    platform.apply("notifications")
    store = platform.start_training("short")
    assert store.claim(1, ("node-0",), "first start", BY)
    store.record_exit(1, "succeeded", "all steps done", BY, ("node-0",))
    platform.apply("notifications")
    assert noted(platform) == [(NoticeKind.FINISHED, f"{store.id} is finished")]
    assert platform.trainings.pending(WorkQueue.NOTICES) == []


def test_addresses_that_cannot_be_read_are_reported_and_what_happens_is_noted_all_the_same(
    platform: Platform, settings: NotificationSettings
):
    platform.apply("notifications")
    store = platform.start_training("short")
    assert store.claim(1, ("node-0",), "first start", BY)
    store.record_exit(1, "succeeded", "all steps done", BY, ("node-0",))
    platform.apply("notifications")
    assert len(noted(platform)) == 1


def test_without_settings_nothing_is_noted_and_nothing_is_owed(platform: Platform):
    store = platform.start_training("failing")
    platform.apply("notifications")
    assert not (platform.home.durable / "notifications").exists()
    assert store.id not in platform.trainings.pending(WorkQueue.NOTICES)
