"""The courier: delivers the outbox to every endpoint, each in a thread of its own.

An endpoint that is away does not delay the others: the courier retries it with a pause that doubles, and its notices
stay in the outbox.
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

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 600.0
"""The first and the longest pause after a failure."""


@dataclass
class _Trip:
    """The current delivery to one endpoint, and the result of the last ones."""

    thread: threading.Thread | None = None
    failures: int = 0
    again: float = 0.0
    """When to try again, by this process's monotonic clock."""
    problem: str = ""


@dataclass
class NoticeCourier:
    """Delivers notices to the endpoints of one platform. One courier lives as long as its process."""

    outbox: Outbox
    _trips: dict[str, _Trip] = field(default_factory=dict)

    def deliver(self, settings: NotificationSettings, patience: float = 2.0) -> list[str]:
        """Send what is due, and wait at most `patience` seconds. Returns the problems of endpoints, a sentence each.

        Raises OSError and ValueError if the addresses cannot be read.
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
        problems = [self._trips[endpoint.url].problem for endpoint in endpoints_read]
        return [problem for problem in problems if problem]

    def _send(self, endpoint: Endpoint, settings: NotificationSettings, trip: _Trip) -> None:
        try:
            pending = [(entry.notice, entry.noted) for entry in self.outbox.pending(endpoint.url)]
            due = notices.due(pending, settings, time.time())
            if due:
                endpoint.send(_message(due, settings.address))
                self.outbox.delivered(endpoint.url, due)
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
