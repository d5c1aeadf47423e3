"""Endpoints: the addresses of messages, and sending a message with Apprise.

An address holds a password or a token, so it is never shown: an endpoint is named by its kind and its line in the file.
Apprise's log lines contain addresses, so only the reason of a failure is taken from them, in our own words.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources import credentials
from slipway.resources.notify.notices import NoticeMessage
from slipway.resources.notify.settings import NotificationSettings

_STATUS = re.compile(r"error=(\d{3})")
_SIGNS = {
    "Name or service not known": "its host name does not exist",
    "No address associated with hostname": "its host name does not exist",
    "Temporary failure in name resolution": "its host name cannot be resolved now",
    "Connection refused": "its server refused the connection",
    "certificate verify failed": "this machine does not trust its certificate",
    "timed out": "it did not answer in time",
    "No route to host": "there is no route to its host",
    "Network is unreachable": "there is no route to its host",
}
"""Texts in Apprise's log lines if a server was not reached, and their meaning."""
SENT = "sent"


class NotSent(Exception):
    """An endpoint did not accept a message; the text gives its name and the reason, but not its address."""


@dataclass(frozen=True)
class Endpoint:
    """One address."""

    url: str = field(repr=False)
    line: int
    """Its line number in the file of addresses, from 1."""

    @property
    def name(self) -> str:
        """The kind of the address and its line, such as `json in line 2`."""
        scheme, mark, _ = self.url.partition("://")
        return f"{scheme if mark and scheme.isalnum() else 'address'} in line {self.line}"

    def send(self, message: NoticeMessage) -> None:
        """Send a message. Raises NotSent, within a few seconds if the server does not answer."""
        import apprise  # takes a second to import

        reasons = _Reasons()
        logger = logging.getLogger("apprise")
        level_before = logger.level
        logger.addFilter(reasons)
        logger.setLevel(logging.DEBUG)  # only this level says why a server was not reached
        try:
            sender = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False, app_id="Slipway"))
            if not sender.add(self.url):
                raise NotSent(f"{self.name}: {self._why_not_known()}")
            level = apprise.NotifyType.WARNING if message.is_urgent else apprise.NotifyType.INFO
            if not sender.notify(message.body, message.title, level, body_format=apprise.NotifyFormat.TEXT):
                raise NotSent(f"{self.name}: it did not accept the message: {reasons.reason}")
        finally:
            logger.setLevel(level_before)
            logger.removeFilter(reasons)

    def _why_not_known(self) -> str:
        from apprise.manager_plugins import NotificationManager

        scheme, mark, _ = self.url.partition("://")
        known = NotificationManager().schemas()  # type: ignore[no-untyped-call]
        if not mark or scheme.lower() not in known:
            return "found an address that Apprise does not know, expected one such as mailto://…"
        page = "https://github.com/caronc/apprise/wiki"
        return f"found an incomplete {scheme}:// address, expected the form that {page} describes"


class _Reasons(logging.Filter):
    """Suppresses Apprise's log, and keeps the reason of a failure in words that contain nothing of the address."""

    reason = "it cannot be reached, or refused it"

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage()
        status = _STATUS.search(line)
        if status:
            self.reason = f"its server answered {status[1]}"
        else:
            self.reason = next((reason for sign, reason in _SIGNS.items() if sign in line), self.reason)
        return False


def read(file: Path) -> list[Endpoint]:
    """The endpoints in a file. Raises OSError, and ValueError if the file has none."""
    lines = enumerate((line.strip() for line in credentials.read_text(file).splitlines()), start=1)
    addresses = [Endpoint(line, number) for number, line in lines if line and not line.startswith("#")]
    if not addresses:
        raise ValueError(f"{file}: found no address, expected one per line, such as mailto://user:password@example.org")
    return addresses


def trial_outcomes(settings: NotificationSettings, by: str) -> Iterator[tuple[str, str]]:
    """Send a test message to one address after the other; yields the name of each, and `SENT` or the problem.

    An address is named by its kind and its line in the file, since it holds a password or a token. Raises OSError, and
    ValueError if the file has no address.
    """
    message = NoticeMessage("Slipway: a test", f"This address gets notifications ({by}).", False)
    for endpoint in read(Path(settings.urls_file)):
        try:
            endpoint.send(message)
        except NotSent as error:
            yield endpoint.name, str(error).removeprefix(f"{endpoint.name}: ")
        else:
            yield endpoint.name, SENT


def trial_problem(outcomes: dict[str, str]) -> str:
    """The addresses that did not accept the test message, and why; "" if all did."""
    failed = [f"{name} ({outcome})" for name, outcome in outcomes.items() if outcome != SENT]
    return f"not sent to {', '.join(failed)}" if failed else ""
