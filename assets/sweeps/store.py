"""The sweep store: the one door to a sweep's durable folder.

    <sweeps folder>/<sweep id>/specification.json    what was asked for, written once
                               events.journal        what became of it, append-only

The id is made from the specification, so that asking twice for the same sweep finds the one that is there.
"""

import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.sweeps import events
from assets.sweeps.events import Closed, Event
from assets.sweeps.state import Sweep, fold
from trainer import atomic, digest, journal

SPECIFICATION = "specification.json"
EVENTS = "events.journal"


def sweep_id(name: str, specification: Mapping[str, Any]) -> str:
    """`<name>-<12 hex digits>` of the SHA-256 of the specification's canonical JSON."""
    return f"{name}-{digest.sha256(atomic.canonical_json(specification))[:12]}"


def sweeps(folder: Path) -> list["SweepStore"]:
    """The sweeps of a folder, by id; none when there is no such folder."""
    return [SweepStore(path.parent) for path in sorted(folder.glob(f"*/{SPECIFICATION}"))]


class SweepStore:
    """One sweep's folder. One process at a time appends; any may read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def sweep(self) -> str:
        """The sweep's id."""
        return self.folder.name

    def create(self, specification: Mapping[str, Any]) -> bool:
        """Write the specification; say False when the sweep is there already. Raises OSError."""
        return atomic.create_only(self.folder / SPECIFICATION, atomic.readable_json(specification))

    def specification(self) -> dict[str, Any]:
        """What the sweep was created with. Raises FileNotFoundError when it was not."""
        specification: dict[str, Any] = json.loads((self.folder / SPECIFICATION).read_bytes())
        return specification

    def append(self, *new: Event) -> None:
        """Log events, stamped with the time; on return they survive a power cut. Raises OSError (a full disk, say)."""
        now = time.time()
        with journal.Journal(self.folder / EVENTS) as log:
            log.append(*(events.record(dataclasses.replace(event, at=now)) for event in new))

    def read(self) -> list[Event]:
        """The events so far, less one that a crash tore; none before the sweep was opened.

        Raises ValueError for a log of another version.
        """
        return [events.parse(record) for record in journal.read(self.folder / EVENTS).events]

    def state(self) -> Sweep | None:
        """Where the sweep stands; None before it was opened."""
        log = self.read()
        return fold(log) if log else None

    def closed(self) -> Closed | None:
        """How the sweep was closed; None while it is not."""
        return next((event for event in self.read() if isinstance(event, Closed)), None)
