"""The outbox: the notices that were noted, and which of them each endpoint has had. It survives every process.

    <durable>/notifications/begun.json           since when notices are noted: nothing older is sent
                            outbox/<id>.json     a notice: create-only, so that each is noted once
                            endpoints/<n>.jsonl  a journal of what an endpoint has had, <n> from the hash of its address

A notice counts as delivered once the endpoint has taken it. A process that dies between the two sends it again.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from resources.notify.notices import Notice
from trainer.base import codec, digest, journal, listing

FORMAT = "slipway.notice/1"
KEPT_SECONDS = 90 * 86_400.0
"""After so long a notice is removed: one that still waits then is sent again."""


@dataclass(frozen=True)
class NotedNotice:
    """A notice in the outbox."""

    notice: Notice
    noted: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class BeginningOfNotices:
    """Since when notices are noted, in seconds since the epoch."""

    at: float


@dataclass(frozen=True)
class Outbox:
    """The notices of one platform. Its methods raise OSError."""

    folder: Path

    @staticmethod
    def of(durable: Path) -> "Outbox":
        """The outbox on a durable tier."""
        return Outbox(durable / "notifications")

    def begun(self) -> float:
        """Since when notices are noted: from the first call on."""
        path = self.folder / "begun.json"
        codec.create_only(path, BeginningOfNotices(time.time()), FORMAT)
        return codec.read(path, BeginningOfNotices, FORMAT).at

    def note(self, notice: Notice, now: float | None = None) -> bool:
        """Put a notice in, unless it ever was; False then."""
        noted = NotedNotice(notice, time.time() if now is None else now)
        return codec.create_only(self._path(notice.id), noted, FORMAT)

    def noted(self) -> list[NotedNotice]:
        """All notices, the oldest first; a damaged one is left out, and is noted again where its cause lasts."""
        found = []
        for name in listing.names_if_there(self.folder / "outbox", ".json"):
            each = codec.read_if_whole(self._path(name), NotedNotice, FORMAT)
            if each is None:
                self._path(name).unlink(missing_ok=True)
            else:
                found.append(each)
        return sorted(found, key=lambda each: (each.noted, each.notice.id))

    def pending(self, url: str) -> list[NotedNotice]:
        """The notices that an endpoint has not had. One that is new is not sent what was noted before it was there."""
        path = self._journal(url)
        events = journal.read(path).events
        if not events:
            with journal.Journal(path) as record:
                record.append({"event": "begun", "t": time.time()})
            events = journal.read(path).events
        begun, had = float(events[0]["t"]), {str(each["id"]) for each in events if each["event"] == "had"}
        return [each for each in self.noted() if each.noted >= begun and each.notice.id not in had]

    def delivered(self, url: str, notices: Iterable[Notice]) -> None:
        """The endpoint has taken these."""
        now = time.time()
        with journal.Journal(self._journal(url)) as record:
            record.append(*({"event": "had", "t": now, "id": each.id} for each in notices))

    def prune(self, now: float) -> None:
        """Remove the notices that are too old."""
        for each in self.noted():
            if each.noted < now - KEPT_SECONDS:
                self._path(each.notice.id).unlink(missing_ok=True)

    def _path(self, id: str) -> Path:
        return self.folder / "outbox" / f"{id}.json"

    def _journal(self, url: str) -> Path:
        return self.folder / "endpoints" / f"{digest.sha256(url.encode())[:16]}.jsonl"
