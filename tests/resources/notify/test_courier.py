"""Messages arrive at a webhook and a server of mail, each once; one that is away loses nothing and blocks nothing."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.resources.notify import courier as couriers
from slipway.resources.notify.courier import NoticeCourier
from slipway.resources.notify.notices import Notice
from slipway.resources.notify.outbox import Outbox
from slipway.resources.notify.settings import NoticeKind, NotificationSettings
from tests.conftest import until
from tests.resources.notify import servers

Chosen = Callable[..., NotificationSettings]


@pytest.fixture
def addressed(tmp_path: Path) -> Chosen:
    """Settings that tell these addresses at once."""

    def settings_for(*urls: str) -> NotificationSettings:
        (tmp_path / "urls").write_text("# for the test\n" + "\n".join(urls))
        return NotificationSettings(urls_file=str(tmp_path / "urls"), group_seconds=0.0, address="https://slipway.test")

    return settings_for


def note(outbox: Outbox, id: str, kind: NoticeKind = NoticeKind.INCIDENT) -> None:
    body = f"What happened: {id}\nWhat was done: restarted\nWhat to do: nothing\nLink: /assets/tiny/incident"
    assert outbox.note(Notice(id, kind, f"tiny: {id}", body, time.time()))


def delivered(outbox: Outbox, settings: NotificationSettings) -> list[str]:
    return NoticeCourier(outbox).deliver(settings, patience=30.0)


def test_a_webhook_and_a_mailbox_get_each_notice_once_also_from_another_process(tmp_path: Path, addressed: Chosen):
    outbox = Outbox(tmp_path / "notifications")
    with servers.webhook() as hook, servers.mailbox() as mail:
        settings = addressed(hook.webhook, mail.mailbox)
        assert delivered(outbox, settings) == []
        note(outbox, "rank 1 was killed", NoticeKind.PERSON)
        assert delivered(outbox, settings) == []
        assert delivered(Outbox(tmp_path / "notifications"), settings) == []
        [sent] = hook.messages
        assert sent["title"] == "Slipway: tiny: rank 1 was killed" and sent["type"] == "warning"
        assert "What to do: nothing\nLink: https://slipway.test/assets/tiny/incident" in sent["message"]
        [letter] = mail.messages
        assert "Subject: Slipway: tiny: rank 1 was killed" in letter and "To: ada@example.org" in letter


def test_what_stands_in_the_outbox_and_is_no_notice_is_passed_over(tmp_path: Path):
    outbox = Outbox(tmp_path / "notifications")
    note(outbox, "rank 1 was killed")
    (outbox.folder / "outbox" / "a folder.json").mkdir()
    os.mkfifo(outbox.folder / "outbox" / "a pipe.json")
    (outbox.folder / "outbox" / "a damaged notice.json").write_text("{")
    assert [entry.notice.id for entry in outbox.noted()] == ["rank 1 was killed"]


def test_an_endpoint_that_is_away_gets_everything_later_and_the_other_one_at_once(
    tmp_path: Path, addressed: Chosen, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(couriers, "FIRST_SECONDS", 0.0)
    outbox = Outbox(tmp_path / "notifications")
    with servers.webhook() as hook:
        with servers.webhook() as other:
            settings = addressed(hook.webhook, other.webhook)
            courier = NoticeCourier(outbox)
            assert courier.deliver(settings, 30.0) == []
            port = other.port
        for id in ("first", "second"):
            note(outbox, id)
            [problem] = courier.deliver(settings, 30.0)
            assert problem.startswith("json in line 3: it did not accept the message") and "s3cr3t" not in problem
        assert len(hook.messages) == 2
        with servers.webhook(port) as back:
            until(lambda: courier.deliver(settings, 30.0) == [], "the endpoint to be back")
            [both] = back.messages
            assert both["title"] == "Slipway: 2 notices"
            assert "first" in both["message"] and "second" in both["message"]
        assert len(hook.messages) == 2


def test_a_server_that_refuses_is_reported_with_its_status_and_without_the_address(
    tmp_path: Path, addressed: Chosen, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    outbox = Outbox(tmp_path / "notifications")
    with servers.webhook() as hook:
        settings = addressed(hook.webhook, "nonsense://s3cr3t-token")
        delivered(outbox, settings)
        hook.status = 403
        note(outbox, "x")
        first, second = delivered(outbox, settings)
    assert first == "json in line 2: it did not accept the message: its server answered 403"
    assert second.startswith("nonsense in line 3: found an address that Apprise does not know")
    assert "s3cr3t" not in "".join([first, second, *capfd.readouterr(), caplog.text])
