"""The courier: brings what is in the outbox to every endpoint, each in a thread of its own.

Nobody waits for an endpoint that is away: it is tried again after a time that doubles, and what it has not had stays in
the outbox. The others get theirs meanwhile.
"""

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.notify import endpoints, notices
from slipway.resources.notify.endpoints import Endpoint, NotSent
from slipway.resources.notify.notices import Notice, NoticeMessage
from slipway.resources.notify.outbox import Outbox
from slipway.resources.notify.settings import NotificationSettings

FIRST_SECONDS, LONGEST_SECONDS = 10.0, 600.0
"""Between a failure and the next try, and at most."""


@dataclass
class _Trip:
    """What is under way to one endpoint, and how the last ones went."""

    thread: threading.Thread | None = None
    failures: int = 0
    again: float = 0.0
    """By the monotonic clock of this process."""
    problem: str = ""


@dataclass
class NoticeCourier:
    """Brings notices to the endpoints of one platform; it is kept for as long as its process lives."""

    outbox: Outbox
    _trips: dict[str, _Trip] = field(default_factory=dict)

    def deliver(self, settings: NotificationSettings, patience: float = 2.0) -> list[str]:
        """Send what is due; waits so many seconds at most. What is wrong with endpoints, a sentence each.

        Raises OSError and ValueError where the addresses cannot be read.
        """
        now = time.monotonic()
        endpoints_read = endpoints.read(Path(settings.urls_file))
        for endpoint in endpoints_read:
            trip = self._trips.setdefault(endpoint.url, _Trip())
            if (trip.thread is None or not trip.thread.is_alive()) and now >= trip.again:
                trip.thread = threading.Thread(target=self._send, args=(endpoint, settings, trip), daemon=True)
                trip.thread.start()
        deadline = now + patience
        for endpoint in endpoints_read:
            thread = self._trips[endpoint.url].thread
            if thread is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        return [problem for endpoint in endpoints_read if (problem := self._trips[endpoint.url].problem)]

    def _send(self, endpoint: Endpoint, settings: NotificationSettings, trip: _Trip) -> None:
        try:
            pending = [(entry.notice, entry.noted) for entry in self.outbox.pending(endpoint.url)]
            if chosen := notices.due(pending, settings, time.time()):
                endpoint.send(_message(chosen, settings.address))
                self.outbox.delivered(endpoint.url, chosen)
            trip.failures = 0
            trip.again = 0.0
            trip.problem = ""
        except (NotSent, OSError, ValueError) as error:
            trip.failures += 1
            trip.again = time.monotonic() + min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(trip.failures - 1, 10))
            trip.problem = str(error)


def _message(chosen: list[Notice], address: str) -> NoticeMessage:
    linked = [
        Notice(notice.id, notice.kind, notice.title, notices.with_links(notice, address), notice.at)
        for notice in chosen
    ]
    return notices.message(linked)
