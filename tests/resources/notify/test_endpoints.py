"""Why an address took nothing: in words that a person can act on, and that have nothing of the address in them."""

import logging

import pytest

from slipway.resources.notify.endpoints import Endpoint, NotSent
from slipway.resources.notify.notices import NoticeMessage

MESSAGE = NoticeMessage("Slipway: a test", "Anything.", False)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("jsom://x.example/s3cr3t", "found an address that Apprise does not know, expected one such as mailto://…"),
        ("s3cr3t", "found an address that Apprise does not know, expected one such as mailto://…"),
        ("slack://s3cr3t", "found an incomplete slack:// address, expected the form that https://github.com/"),
        ("json://127.0.0.1:1/s3cr3t", "it did not accept the message: its server refused the connection"),
        ("json://no-such-host.invalid/s3cr3t", "it did not accept the message: its host name "),
        (
            "mailto://me:s3cr3t@127.0.0.1:1?from=a@x.example&to=b@x.example",
            "message: its server refused the connection",
        ),
    ],
)
def test_the_reason_is_reported_and_the_address_is_not(
    url: str, reason: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.DEBUG), pytest.raises(NotSent, match=reason) as caught:
        Endpoint(url, 3).send(MESSAGE)
    assert str(caught.value).split(": ")[0].endswith(" in line 3")
    assert "s3cr3t" not in "".join([str(caught.value), *capfd.readouterr(), caplog.text])
