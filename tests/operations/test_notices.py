"""The UI's test of notifications: each address gets a message, and what fails is one sentence."""

from pathlib import Path

import dagster as dg
import pytest

from slipway.operations import notices
from slipway.resources.notify.settings import NotificationSettings
from tests.resources.notify import servers


def failure(settings: NotificationSettings | None) -> str:
    done = notices.job(settings).execute_in_process(raise_on_error=False)
    [event] = [event for event in done.all_events if event.is_step_failure]
    failed = event.step_failure_data
    assert failed.user_failure_data is not None
    return str(failed.user_failure_data.description)


def test_each_address_gets_a_message_that_names_who_asked(tmp_path: Path):
    with servers.webhook() as hook:
        (tmp_path / "urls").write_text(f"{hook.webhook}\n")
        done = notices.job(NotificationSettings(urls_file=str(tmp_path / "urls"))).execute_in_process()
        [message] = hook.messages
    assert message["title"] == "Slipway: a test" and f"run {done.run_id}" in message["message"]
    [output] = [event for event in done.all_events if event.event_type is dg.DagsterEventType.STEP_OUTPUT]
    assert output.step_output_data.metadata["json in line 1"].value == "sent"


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (
            "json://127.0.0.1:1/s3cr3t\n",
            "not sent to json in line 1 (it did not accept the message: its server refused the connection)",
        ),
        ("# nobody\n", "found no address, expected one per line"),
    ],
)
def test_an_address_that_takes_nothing_is_one_sentence(tmp_path: Path, addresses: str, expected: str):
    (tmp_path / "urls").write_text(addresses)
    description = failure(NotificationSettings(urls_file=str(tmp_path / "urls")))
    assert expected in description and "s3cr3t" not in description


def test_where_nobody_is_told_the_run_says_what_is_missing():
    assert failure(None) == notices.NOBODY
