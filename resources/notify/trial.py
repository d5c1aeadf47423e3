"""Trial: a message to every address, for a person who wants to know whether each takes one."""

from collections.abc import Iterator
from pathlib import Path

from slipway.resources.notify import endpoints
from slipway.resources.notify.endpoints import NotSent
from slipway.resources.notify.notices import NoticeMessage
from slipway.resources.notify.settings import NotificationSettings

SENT = "sent"


def outcomes(settings: NotificationSettings, by: str) -> Iterator[tuple[str, str]]:
    """Send it to one address after the other: the name of each, and `SENT` or why not.

    An address is named by its kind and its line in the file, since it holds a password or a token. Raises OSError, and
    ValueError for a file without any address.
    """
    message = NoticeMessage("Slipway: a test", f"This address gets notifications ({by}).", False)
    for endpoint in endpoints.read(Path(settings.urls_file)):
        try:
            endpoint.send(message)
        except NotSent as error:
            yield endpoint.name, str(error).removeprefix(f"{endpoint.name}: ")
        else:
            yield endpoint.name, SENT


def problem(outcomes: dict[str, str]) -> str:
    """Which addresses did not take it, and why; empty where all did."""
    failed = [f"{name} ({outcome})" for name, outcome in outcomes.items() if outcome != SENT]
    return f"not sent to {', '.join(failed)}" if failed else ""
