"""Endpoints: the addresses that messages go to, and how one is sent, through Apprise.

An address holds a password or a token. So it is shown nowhere: an endpoint is known by its kind and its line in the
file, and what Apprise itself logs, which has addresses in it, is dropped but for the status that a server answered.
"""

import logging
import re
from dataclasses import dataclass, field
from pathlib import Path

from resources import credentials
from resources.notify.notices import NoticeMessage

_STATUS = re.compile(r"error=(\d{3})")


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

        said = _Warnings()
        logger = logging.getLogger("apprise")
        logger.propagate = False  # its lines have addresses in them
        logger.addHandler(said)
        try:
            sender = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False, app_id="Slipway"))
            if not sender.add(self.url):
                raise NotSent(f"{self.name}: found an address that Apprise does not know, expected such as mailto://…")
            level = apprise.NotifyType.WARNING if message.is_urgent else apprise.NotifyType.INFO
            if not sender.notify(message.body, message.title, level, body_format=apprise.NotifyFormat.TEXT):
                raise NotSent(f"{self.name}: it did not take the message: {said.reason}")
        finally:
            logger.removeHandler(said)


class _Warnings(logging.Handler):
    """Keeps what status a server answered."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reason = "it cannot be reached, or refused it"

    def emit(self, record: logging.LogRecord) -> None:
        if found := _STATUS.search(record.getMessage()):
            self.reason = f"its server answered {found[1]}"


def read(file: Path) -> list[Endpoint]:
    """The endpoints in a file. Raises OSError, and ValueError for a file without any."""
    lines = enumerate((line.strip() for line in credentials.read_text(file).splitlines()), start=1)
    found = [Endpoint(line, number) for number, line in lines if line and not line.startswith("#")]
    if not found:
        raise ValueError(f"{file}: found no address, expected one a line, such as mailto://user:password@example.org")
    return found
