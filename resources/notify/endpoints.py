"""Endpoints: the addresses that messages go to, and how one is sent, through Apprise.

An address holds a password or a token. So it is shown nowhere: an endpoint is known by its kind and its line in the
file. Of what Apprise itself logs, which has addresses in it, only why a server took nothing is kept, in our own words.
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
    "Name or service not known": "no machine has the name of its host",
    "No address associated with hostname": "no machine has the name of its host",
    "Temporary failure in name resolution": "the name of its host cannot be looked up now",
    "Connection refused": "nobody listens there",
    "certificate verify failed": "its certificate is not one that this machine trusts",
    "timed out": "it did not answer in time",
    "No route to host": "no way leads to its host",
    "Network is unreachable": "no way leads to its host",
}
"""What Apprise's lines have where a server was not reached, and what that means."""
SENT = "sent"


class NotSent(Exception):
    """An endpoint did not take a message; the text says which, and why, without its address."""


@dataclass(frozen=True)
class Endpoint:
    """One address."""

    url: str = field(repr=False)
    line: int
    """In the file of the addresses, from 1 on."""

    @property
    def name(self) -> str:
        """The kind of the address and its line: `json in line 2`."""
        scheme, mark, _ = self.url.partition("://")
        return f"{scheme if mark and scheme.isalnum() else 'address'} in line {self.line}"

    def send(self, message: NoticeMessage) -> None:
        """Send a message. Raises NotSent; takes a few seconds at most for a server that does not answer."""
        import apprise  # a second, and only where there is something to send

        reasons = _Reasons()
        logger = logging.getLogger("apprise")
        level_before = logger.level
        logger.addFilter(reasons)
        logger.setLevel(logging.DEBUG)  # only there does it say why a server was not reached
        try:
            sender = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False, app_id="Slipway"))
            if not sender.add(self.url):
                raise NotSent(f"{self.name}: {self._why_not_known()}")
            level = apprise.NotifyType.WARNING if message.is_urgent else apprise.NotifyType.INFO
            if not sender.notify(message.body, message.title, level, body_format=apprise.NotifyFormat.TEXT):
                raise NotSent(f"{self.name}: it did not take the message: {reasons.reason}")
        finally:
            logger.setLevel(level_before)
            logger.removeFilter(reasons)

    def _why_not_known(self) -> str:
        from apprise.manager_plugins import NotificationManager

        scheme, mark, _ = self.url.partition("://")
        known = NotificationManager().schemas()  # type: ignore[no-untyped-call]
        if not mark or scheme.lower() not in known:
            return "found an address that Apprise does not know, expected such as mailto://…"
        page = "https://github.com/caronc/apprise/wiki"
        return f"found an address of {scheme}:// that is not complete, expected what {page} says of it"


class _Reasons(logging.Filter):
    """Lets no line through, and keeps why a message was not sent, in words that have nothing of the address in them."""

    reason = "it cannot be reached, or refused it"

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage()
        if status := _STATUS.search(line):
            self.reason = f"its server answered {status[1]}"
        else:
            self.reason = next((reason for sign, reason in _SIGNS.items() if sign in line), self.reason)
        return False


def read(file: Path) -> list[Endpoint]:
    """The endpoints in a file. Raises OSError, and ValueError for a file without any."""
    lines = enumerate((line.strip() for line in credentials.read_text(file).splitlines()), start=1)
    addresses = [Endpoint(line, number) for number, line in lines if line and not line.startswith("#")]
    if not addresses:
        raise ValueError(f"{file}: found no address, expected one a line, such as mailto://user:password@example.org")
    return addresses


def trial_outcomes(settings: NotificationSettings, by: str) -> Iterator[tuple[str, str]]:
    """Send it to one address after the other: the name of each, and `SENT` or why not.

    An address is named by its kind and its line in the file, since it holds a password or a token. Raises OSError, and
    ValueError for a file without any address.
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
    """Which addresses did not take it, and why; empty where all did."""
    failed = [f"{name} ({outcome})" for name, outcome in outcomes.items() if outcome != SENT]
    return f"not sent to {', '.join(failed)}" if failed else ""
