"""The sweep store: the only access to a sweep's durable folder.

    <sweeps folder>/<sweep id>/specification.json    everything that decides which sweep it is, written once
                               events.journal        the events of the sweep, append-only
                               requests/<n>.json     a person's request: pause, resume, or change the budget
                               cancelled.json        the cancellation by a person, with actor and reason, written once

The log has one writer, which holds the folder's lock while the sweep runs. Opening, cancelling or steering a sweep does
not wait for that writer: opening is complete before the writer starts, and the others are separate records that all
readers apply immediately and the writer logs.

The id follows from the specification, so the same specification always finds the same sweep.
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
"""Seconds to wait for another process that opens the sweep, which takes one append."""
CANCELLED = "cancelled.json"
CANCELLATION = "slipway.sweep-cancellation/1"
REQUESTS = "requests"
REQUEST = "slipway.sweep-request/1"


@dataclasses.dataclass(frozen=True)
class SweepCancellation:
    """A person's cancellation of a sweep."""

    by: str
    why: str
    at: float
    """Seconds since the epoch."""


@dataclasses.dataclass(frozen=True)
class SweepRequest:
    """A request to a sweep, from a person or a changed recipe."""

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
    """The whole new budget; in a request to pause or resume, the present budget."""

    def event(self, number: int) -> Event:
        """The event that answers the request."""
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
    """The sweeps of a folder, by id; empty if the folder does not exist. Raises OSError if it cannot be listed.

    They include sweeps whose own folder cannot be read; their users get the error.
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

    It caches what it has read, so that each access reads only new events.
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
        """Write the specification; returns False if the sweep exists already. Raises OSError."""
        return codec.create_only(self.folder / SPECIFICATION, specification)

    def specification(self) -> dict[str, Any]:
        """The specification of the sweep. Raises FileNotFoundError if the sweep does not exist."""
        return codec.read(self.folder / SPECIFICATION, dict[str, Any])

    def append(self, *new: Event) -> None:
        """Log events with the current time; on return they survive a power cut. Raises OSError, for example if the
        disk is full."""
        now = time.time()
        with journal.Journal(self.folder / EVENTS) as log:
            log.append(*(events.record(dataclasses.replace(event, at=now)) for event in new))

    def open(self, first: Opened, budget: Budgeted) -> None:
        """Log the first events unless the sweep is open; of several processes only one does.

        If the sweep is open, request the recipe's budget if that has changed. Raises lock.LockHeld if another
        process holds the lock for too long.
        """
        if self.state() is None:
            with lock.within(self.folder, OPENING_SECONDS):
                if self.state() is None:
                    self.append(first, budget)
        self.ask_for_the_recipes(budget)

    def ask_for_the_recipes(self, budget: Budgeted) -> None:
        """Request the recipe's budget, unless it equals the last budget from a recipe."""
        sweep = self.state()
        assert sweep is not None, "a sweep is opened before anything is asked of it"
        if dataclasses.replace(sweep.recipe_budget, request=0, why="") != budget:
            self._ask("budget", RECIPE, "", budget)

    def ask(self, kind: Literal["pause", "resume", "budget"], by: str, why: str = "", **changes: Any) -> None:
        """Record a person's request to pause, to resume, or to change the budget by `changes`.

        All readers apply it immediately. Raises ValueError for a sweep that is not open, and for an invalid budget.
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
        # The number must also exceed the logged ones: a request with the number of a lost one would count as answered.
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
        """Close the sweep for all readers; its writer logs that and stops its trials. False if it was cancelled
        before."""
        return codec.create_only(self.folder / CANCELLED, SweepCancellation(by, why, time.time()), CANCELLATION)

    def log_requests(self) -> None:
        """Log the requests and the cancellation that are not in the log yet. Only the log's writer may call this."""
        logged = self._follow()
        if logged is None:
            return
        requests = self._unlogged_requests(logged)
        if requests:
            self.append(*requests)

    def _unlogged_requests(self, sweep: SweepState) -> list[Event]:
        """The events for requests and a cancellation that are not in the log yet."""
        requests: list[Event] = []
        for number in self._requests():
            if number > sweep.answered:
                request = codec.read_if_whole(self._request(number), SweepRequest, REQUEST)
                if request:  # a damaged request is ignored
                    requests.append(request.event(number))
        after = sweep.after(*requests)
        cancellation = None if after.closed else self._cancellation()
        if cancellation:
            requests.append(closing(after, "stopped", cancellation.why))
        return requests

    def _cancellation(self) -> SweepCancellation | None:
        return codec.read_if_there(self.folder / CANCELLED, SweepCancellation, CANCELLATION)

    def read(self) -> list[Event]:
        """The events so far, without an incomplete event after a crash; empty before the sweep is opened.

        Raises ValueError for a log of another version.
        """
        return [events.parse(record) for record in journal.read(self.folder / EVENTS).events]

    def state(self) -> SweepState | None:
        """The state of the sweep, the same object while nothing is new; None before the sweep is opened."""
        logged = self._follow()
        if logged is None:
            return None
        return logged.after(*self._unlogged_requests(logged))

    def _follow(self) -> SweepState | None:
        """The sweep after all events of the log; each call reads only the new ones."""
        try:
            size = (self.folder / EVENTS).stat().st_size
        except FileNotFoundError:
            size = 0
        if size < self._offset:  # the log was replaced
            self._offset = 0
            self._logged = None
            self._first = []
        if size == self._offset:
            return self._logged
        reading = journal.read(self.folder / EVENTS, self._offset)
        new = [events.parse(record) for record in reading.events]
        if self._logged is not None:
            self._logged = self._logged.after(*new)
        else:  # a process may have died between the first event and the second
            self._first += new
            self._logged = fold(self._first) if any(isinstance(event, Budgeted) for event in self._first) else None
        self._offset = reading.offset
        return self._logged

    def closed(self) -> Closed | None:
        """The event that closed the sweep; None while the sweep is open."""
        state = self.state()
        return state.closed if state else None
