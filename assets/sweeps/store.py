"""The sweep store: the only access to a sweep's durable folder.

    <sweeps folder>/<sweep id>/specification.json    everything that decides the sweep, written once
                               events.journal        the events of the sweep, append-only
                               cancelled.json        that a person cancelled it: by whom and why, written once

The log has one writer, who holds the lock of the folder while the sweep runs. Who opens or cancels a sweep does not
wait for that writer: opening is over before it begins, and a cancellation is a record of its own that all readers heed.

The id follows from the specification, so the same sweep is found again and not made twice.
"""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.sweeps import events
from assets.sweeps.decisions import closing
from assets.sweeps.events import Closed, Event, Opened
from assets.sweeps.state import SweepState, fold
from trainer.base import atomic, codec, digest, journal, listing, lock

SPECIFICATION = "specification.json"
EVENTS = "events.journal"
OPENING_SECONDS = 60.0
"""How long another process may open a sweep, which is one event."""
CANCELLED, CANCELLATION = "cancelled.json", "slipway.sweep-cancellation/1"


@dataclasses.dataclass(frozen=True)
class SweepCancellation:
    """That a person cancelled a sweep."""

    by: str
    why: str
    at: float
    """Seconds since the epoch."""


def sweep_id(name: str, specification: Mapping[str, Any]) -> str:
    """`<name>-<12 hex digits>` of the SHA-256 of the specification's canonical JSON."""
    return f"{name}-{digest.sha256(atomic.canonical_json(specification))[:12]}"


def sweeps(folder: Path) -> list["SweepStore"]:
    """The sweeps of a folder, by id; empty when there is no such folder. Raises OSError when it cannot be listed.

    A sweep whose own folder cannot be read is one of them: who visits it learns what is wrong with it.
    """
    return [SweepStore(folder / id) for id in listing.names_if_there(folder) if _is_sweep(folder / id)]


def _is_sweep(folder: Path) -> bool:
    """Whether a folder has a specification, or it cannot be told."""
    try:
        (folder / SPECIFICATION).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


class SweepStore:
    """The folder of one sweep. One process at a time appends; any process may read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def sweep(self) -> str:
        """The sweep's id."""
        return self.folder.name

    def create(self, specification: Mapping[str, Any]) -> bool:
        """Write the specification; returns False when the sweep exists already. Raises OSError."""
        return codec.create_only(self.folder / SPECIFICATION, specification)

    def specification(self) -> dict[str, Any]:
        """The specification of the sweep. Raises FileNotFoundError when the sweep does not exist."""
        return codec.read(self.folder / SPECIFICATION, dict[str, Any])

    def append(self, *new: Event) -> None:
        """Log events, stamped with the time; on return they survive a power cut. Raises OSError, for example when the
        disk is full."""
        now = time.time()
        with journal.Journal(self.folder / EVENTS) as log:
            log.append(*(events.record(dataclasses.replace(event, at=now)) for event in new))

    def open(self, first: Opened) -> None:
        """Log the first event, unless the sweep is open: of several processes one does.

        Raises lock.Held when another process has been at it for too long.
        """
        if self.read():
            return
        with lock.within(self.folder, OPENING_SECONDS):
            if not self.read():
                self.append(first)

    def cancel(self, by: str, why: str) -> bool:
        """Close the sweep for all readers; its writer logs that and stops its trials. False when it was cancelled
        before."""
        return codec.create_only(self.folder / CANCELLED, SweepCancellation(by, why, time.time()), CANCELLATION)

    def log_cancellation(self) -> None:
        """Log that the sweep was cancelled, if it was, unless it is closed. For the log's one writer."""
        log = self.read()
        if log and (closed := self._cancelled(fold(log))):
            self.append(closed)

    def _cancelled(self, sweep: SweepState) -> Closed | None:
        """The event that closes a sweep that was cancelled and is not closed."""
        asked = codec.read_if_there(self.folder / CANCELLED, SweepCancellation, CANCELLATION)
        return closing(sweep, "stopped", asked.why) if asked and not sweep.closed else None

    def read(self) -> list[Event]:
        """The events so far, without an event that a crash left incomplete; empty before the sweep was opened.

        Raises ValueError for a log of another version.
        """
        return [events.parse(record) for record in journal.read(self.folder / EVENTS).events]

    def state(self) -> SweepState | None:
        """The state of the sweep; None before it was opened."""
        log = self.read()
        if not log:
            return None
        sweep = fold(log)
        closed = self._cancelled(sweep)
        return sweep.after(closed) if closed else sweep

    def closed(self) -> Closed | None:
        """The event that closed the sweep; None while the sweep is open."""
        state = self.state()
        return state.closed if state else None
