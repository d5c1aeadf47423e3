"""The outbox: the noted notices, and what each endpoint has received. It survives every process.

    <durable>/notifications/begun.json           when noting began: nothing older is sent
                            outbox/<id>.json     a notice; create-only, so that each is noted once
                            endpoints/<n>.jsonl  a journal of deliveries to an endpoint; <n> is a hash of its address

A notice is recorded as delivered after the endpoint has accepted it; if the process dies in between, the notice is sent
again. People must also hear of a full tier, on which nothing can be recorded: until there is room again, notices and
deliveries stay in the memory of this process.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.notify.notices import Notice
from slipway.trainer.base import codec, digest, journal, listing
from slipway.trainer.base.file_system import FULL
from slipway.trainer.base.units import DAY

FORMAT = "slipway.notice/1"
KEPT_SECONDS = 90 * DAY
"""The age at which a notice is removed. If its cause lasts longer, it is noted and sent again."""


@dataclass(frozen=True)
class NotedNotice:
    """A notice in the outbox."""

    notice: Notice
    noted: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class BeginningOfNotices:
    """When noting began, in seconds since the epoch."""

    at: float


@dataclass
class Outbox:
    """The notices of one platform. Its methods raise OSError."""

    folder: Path
    _unwritten: dict[str, NotedNotice] = field(default_factory=dict)
    """The notices that did not fit on the full tier, by id."""
    _had: dict[str, set[str]] = field(default_factory=dict)
    """The ids of deliveries whose record did not fit on the full tier, by endpoint."""

    @staticmethod
    def of(durable: Path) -> "Outbox":
        """The outbox on a durable tier."""
        return Outbox(durable / "notifications")

    def begun(self) -> float:
        """When noting began: at the first call ever."""
        path = self.folder / "begun.json"
        first_record = codec.read_if_there(path, BeginningOfNotices, FORMAT)
        if first_record is None:
            codec.create_only(path, BeginningOfNotices(time.time()), FORMAT)
            first_record = codec.read(path, BeginningOfNotices, FORMAT)
        return first_record.at

    def note(self, notice: Notice, now: float | None = None) -> bool:
        """Note a notice. Returns False if it was noted before."""
        noted = NotedNotice(notice, time.time() if now is None else now)
        unwritten = self._unwritten.get(notice.id)
        try:
            is_new = codec.create_only(self._path(notice.id), unwritten or noted, FORMAT)
        except OSError as error:
            if error.errno not in FULL:
                raise
            is_new = not self._path(notice.id).exists()
            if is_new:
                self._unwritten.setdefault(notice.id, noted)
        else:
            self._unwritten.pop(notice.id, None)
        return is_new and unwritten is None

    def noted(self) -> list[NotedNotice]:
        """All notices, the oldest first. A damaged one is removed; it is noted again if its cause lasts."""
        by_id = dict(self._unwritten)
        for name in listing.files_if_there(self.folder / "outbox", ".json"):
            entry = codec.read_if_whole(self._path(name), NotedNotice, FORMAT)
            if entry is None:
                self._path(name).unlink(missing_ok=True)
            else:
                by_id[entry.notice.id] = entry
        return sorted(by_id.values(), key=lambda noted_notice: (noted_notice.noted, noted_notice.notice.id))

    def pending(self, url: str) -> list[NotedNotice]:
        """The notices that an endpoint has not received. A new endpoint does not receive older notices."""
        path = self._journal(url)
        events = journal.read(path).events
        if not events:
            with journal.Journal(path) as record:
                record.append({"event": "begun", "t": time.time()})
            events = journal.read(path).events
        begun = float(events[0]["t"])
        had = {str(event["id"]) for event in events if event["event"] == "had"}
        had |= self._had.get(url, set())
        return [entry for entry in self.noted() if entry.noted >= begun and entry.notice.id not in had]

    def delivered(self, url: str, notices: Iterable[Notice]) -> None:
        """Record that the endpoint has accepted these notices."""
        now = time.time()
        had = {notice.id for notice in notices} | self._had.pop(url, set())
        try:
            with journal.Journal(self._journal(url)) as record:
                record.append(*({"event": "had", "t": now, "id": id} for id in sorted(had)))
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._had[url] = had

    def prune(self, now: float) -> None:
        """Remove notices older than `KEPT_SECONDS`."""
        for entry in self.noted():
            if entry.noted < now - KEPT_SECONDS:
                self._path(entry.notice.id).unlink(missing_ok=True)

    def _path(self, id: str) -> Path:
        return self.folder / "outbox" / f"{id}.json"

    def _journal(self, url: str) -> Path:
        return self.folder / "endpoints" / f"{digest.sha256(url.encode())[:16]}.jsonl"
