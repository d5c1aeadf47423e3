"""`slipway notify test`: whether each address takes a message; no address is ever printed."""

from pathlib import Path

from tests.cli.conftest import Call
from tests.resources.notify import servers


def test_a_test_message_goes_to_every_address_and_no_address_is_printed(slipway: Call, tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    with servers.webhook() as hook:
        (home / "notifications.yaml").write_text("slipway: notifications/1\nurls_file: urls\n")
        (home / "urls").write_text(f"{hook.webhook}\njson://127.0.0.1:1/s3cr3t-token\n")
        result = slipway("notify", "test")
        assert [message["title"] for message in hook.messages] == ["Slipway: a test"]
    assert "json in line 1  sent" in result.out
    assert result.code == 1 and result.err.endswith("slipway: not sent to json in line 2\n")
    assert "s3cr3t" not in result.out + result.err


def test_without_settings_the_command_says_where_they_belong(slipway: Call, tmp_path: Path):
    result = slipway("notify", "test")
    assert result.code == 1 and f"{tmp_path / 'home' / 'notifications.yaml'}: found nothing, expected" in result.err
