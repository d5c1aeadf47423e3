"""The sweep store: the only access to a sweep's durable folder.

    <sweeps folder>/<sweep id>/specification.json    everything that decides which sweep it is, written once
                               events.journal        the events of the sweep, append-only
                               requests/<n>.json     what a person asked of it: to pause, go on, or spend otherwise
                               cancelled.json        that a person cancelled it: by whom and why, written once

The log has one writer, who holds the lock of the folder while the sweep runs. Who opens or cancels a sweep, or asks
something of it, does not wait for that writer: opening is over before it begins, and the others are records of their
own that all readers heed at once, and that the writer logs.

The id follows from the specification, so the same sweep is found again and not made twice.
"""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from slipway.assets.sweeps import events
from slipway.assets.sweeps.decisions import closing
from slipway.assets.sweeps.events import RECIPE, Budgeted, Closed, Event, Opened, SweepPaused, SweepResumed
from slipway.assets.sweeps.state import SweepState, fold
from slipway.trainer.base import atomic, codec, digest, journal, listing, lock

SPECIFICATION = "specification.json"
EVENTS = "events.journal"
OPENING_SECONDS = 60.0
"""How long another process may open a sweep, which is one append."""
CANCELLED, CANCELLATION = "cancelled.json", "slipway.sweep-cancellation/1"
REQUESTS, REQUEST = "requests", "slipway.sweep-request/1"


@dataclasses.dataclass(frozen=True)
class SweepCancellation:
    """That a person cancelled a sweep."""

    by: str
    why: str
    at: float
    """Seconds since the epoch."""


@dataclasses.dataclass(frozen=True)
class SweepRequest:
    """What a person, or a recipe that has changed, asks of a sweep."""

    kind: Literal["pause", "resume", "budget"]
    by: str
    why: str
    at: float
    """Seconds since the epoch."""
    trials: int
    parallel: int
    retries: int
    failed_trials: int
    goal: float | None
    """The whole budget from now on; of a request to pause or go on, the budget as it was."""

    def event(self, number: int) -> Event:
        """The event that answers it."""
        if self.kind == "pause":
            return SweepPaused(by=self.by, why=self.why, request=number)
        if self.kind == "resume":
            return SweepResumed(by=self.by, why=self.why, request=number)
        return Budgeted(
            trials=self.trials,
            parallel=self.parallel,
            retries=self.retries,
            failed_trials=self.failed_trials,
            goal=self.goal,
            by=self.by,
            why=self.why,
            request=number,
        )


def sweep_id(name: str, specification: Mapping[str, Any]) -> str:
    """`<name>-<12 hex digits>` of the SHA-256 of the specification's canonical JSON."""
    return f"{name}-{digest.sha256(atomic.canonical_json(specification))[:12]}"


def sweeps(folder: Path) -> list["SweepStore"]:
    """The sweeps of a folder, by id; empty when there is no such folder. Raises OSError when it cannot be listed.

    A sweep whose own folder cannot be read is one of them: who visits it learns what is wrong with it.
    """
    return [SweepStore(folder / id) for id in listing.names_if_there(folder) if _is_sweep(folder / id)]


def _is_sweep(folder: Path) -> bool:
    """Whether a folder has a specification, or the folder cannot be read."""
    try:
        (folder / SPECIFICATION).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


class SweepStore:
    """The folder of one sweep. One process at a time appends; any process may read.

    It remembers what it has read, so that each look reads what is new.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offset = 0
        self._logged: SweepState | None = None
        self._first: list[Event] = []

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

    def open(self, first: Opened, budget: Budgeted) -> None:
        """Log the first events, unless the sweep is open: of several processes one does.

        Of a sweep that is open, ask for the recipe's budget if it has changed. Raises lock.LockHeld when another
        process has been at it for too long.
        """
        if self.state() is None:
            with lock.within(self.folder, OPENING_SECONDS):
                if self.state() is None:
                    self.append(first, budget)
        self.ask_for_the_recipes(budget)

    def ask_for_the_recipes(self, budget: Budgeted) -> None:
        """Ask for the budget of the recipe, unless that is the last one that a recipe gave."""
        sweep = self.state()
        assert sweep is not None, "a sweep is opened before anything is asked of it"
        if dataclasses.replace(sweep.recipe_budget, request=0, why="") != budget:
            self._ask("budget", RECIPE, "", budget)

    def ask(self, kind: Literal["pause", "resume", "budget"], by: str, why: str = "", **changes: Any) -> None:
        """A person's request: to pause, to go on, or to spend otherwise, with what of the budget changes.

        All readers heed it at once. Raises ValueError for a sweep that is not open, and a budget that is none.
        """
        sweep = self.state()
        if sweep is None:
            raise ValueError(f"sweep {self.sweep}: it has not been opened yet")
        budget = dataclasses.replace(sweep.budget, **changes)
        for name, least in (("trials", 1), ("parallel", 1), ("retries", 0), ("failed_trials", 0)):
            if getattr(budget, name) < least:
                raise ValueError(f"{name}: found {getattr(budget, name)}, expected {least} or more")
        self._ask(kind, by, why, budget)

    def _ask(self, kind: Literal["pause", "resume", "budget"], by: str, why: str, budget: Budgeted) -> None:
        spent = {name: getattr(budget, name) for name in ("trials", "parallel", "retries", "failed_trials", "goal")}
        request = SweepRequest(kind, by, why, time.time(), **spent)
        logged = self._follow()
        # Above what is logged, too: a request under the number of one that was lost would be taken for answered.
        number = max([*self._requests(), logged.answered if logged else 0]) + 1
        while not codec.create_only(self._request(number), request, REQUEST):
            number += 1

    def _requests(self) -> list[int]:
        """The numbers of all requests, ascending."""
        names = listing.names_if_there(self.folder / REQUESTS)
        return sorted(int(name.removesuffix(".json")) for name in names if name.removesuffix(".json").isdigit())

    def _request(self, number: int) -> Path:
        return self.folder / REQUESTS / f"{number:06}.json"

    def cancel(self, by: str, why: str) -> bool:
        """Close the sweep for all readers; its writer logs that and stops its trials. False when it was cancelled
        before."""
        return codec.create_only(self.folder / CANCELLED, SweepCancellation(by, why, time.time()), CANCELLATION)

    def log_requests(self) -> None:
        """Log what persons asked for and the log does not have, and a cancellation. For the log's one writer."""
        logged = self._follow()
        if logged is not None and (requests := self._unlogged_requests(logged)):
            self.append(*requests)

    def _unlogged_requests(self, sweep: SweepState) -> list[Event]:
        """The events that the log does not have yet, of requests and of a cancellation."""
        requests: list[Event] = []
        for number in self._requests():
            if number > sweep.answered:
                request = codec.read_if_whole(self._request(number), SweepRequest, REQUEST)
                requests += [request.event(number)] if request else []  # one that is damaged asks for nothing
        after = sweep.after(*requests)
        if not after.closed and (by := self._cancellation()):
            requests.append(closing(after, "stopped", by.why))
        return requests

    def _cancellation(self) -> SweepCancellation | None:
        return codec.read_if_there(self.folder / CANCELLED, SweepCancellation, CANCELLATION)

    def read(self) -> list[Event]:
        """The events so far, without an event that a crash left incomplete; empty before the sweep was opened.

        Raises ValueError for a log of another version.
        """
        return [events.parse(record) for record in journal.read(self.folder / EVENTS).events]

    def state(self) -> SweepState | None:
        """The state of the sweep, the same object while nothing is new; None before the sweep was opened."""
        logged = self._follow()
        return None if logged is None else logged.after(*self._unlogged_requests(logged))

    def _follow(self) -> SweepState | None:
        """The sweep after all events of the log, of which each look reads the new ones."""
        try:
            size = (self.folder / EVENTS).stat().st_size
        except FileNotFoundError:
            size = 0
        if size < self._offset:  # another log lies there now
            self._offset, self._logged, self._first = 0, None, []
        if size == self._offset:
            return self._logged
        reading = journal.read(self.folder / EVENTS, self._offset)
        new = [events.parse(record) for record in reading.events]
        if self._logged is not None:
            self._logged = self._logged.after(*new)
        else:  # a process that died may have left the first event without the second
            self._first += new
            self._logged = fold(self._first) if any(isinstance(event, Budgeted) for event in self._first) else None
        self._offset = reading.offset
        return self._logged

    def closed(self) -> Closed | None:
        """The event that closed the sweep; None while the sweep is open."""
        state = self.state()
        return state.closed if state else None
