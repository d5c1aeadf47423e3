"""One tick of a sensor: its subjects one after the other, each alone, and what the tick gives back to Dagster.

Whatever is wrong with one subject (a training, a sweep, a dataset, the fleet) is shown on it once, with what
to do, and the subject is tried again after a while (`slipway.sensors.support.faults`); the tick goes on with the next
one. A launcher or a fleet that cannot be asked is tried again by the next tick. A tick has a deadline,
as Dagster drops all that a tick has collected when it takes a minute: the subjects that it did not reach come first in
the next one.
"""

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import dagster as dg

from slipway.assets.subjects import Subject
from slipway.resources.errors import Unavailable
from slipway.sensors.support import runs
from slipway.sensors.support.faults import Faults

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
PartitionsRequest = dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest
Thing = TypeVar("Thing")
NAMED = 5
"""So many reasons are named when a tick has nothing to do; the sensor's log has all of them."""
TICK_SECONDS = 25.0
"""After so long no further subject is begun; Dagster gives a tick 60 s."""
_LATE: dict[str, str] = {}
"""By sensor, the subject that the next tick begins with: kept in this process, as nothing is lost with it."""


class Tick:
    """What one tick has collected so far."""

    def __init__(self, context: dg.SensorEvaluationContext, sensor: str) -> None:
        self.instance: dg.DagsterInstance = context.instance
        self.log = context.log
        self.requests: list[dg.RunRequest] = []
        self.events: list[Event] = []
        self.partitions: list[PartitionsRequest] = []
        self._context = context
        self._sensor = sensor
        self._faults = Faults(context.cursor, self._sensor)
        self._postponed: list[str] = []
        self._begun = time.monotonic()

    def for_each(
        self, things: Iterable[Thing], subject: Callable[[Thing], Subject], act: Callable[[Thing], None]
    ) -> None:
        """Act on each thing, each alone; begins with those that the tick before did not reach."""
        named = [(subject(thing), thing) for thing in things]
        first = _LATE.pop(self._sensor, "")
        for index, (who, thing) in enumerate(rest := _turned(named, first)):
            if time.monotonic() - self._begun > TICK_SECONDS:
                _LATE[self._sensor] = who.name
                for later, _ in rest[index:]:
                    self._faults.keep(later)
                self.postpone(f"{len(rest) - index} subjects, from {who.name} on, are left for the next tick")
                return
            self.visit(who, lambda thing=thing: act(thing))  # type: ignore[misc]

    def defer(self, things: Iterable[Thing], subject: Callable[[Thing], Subject]) -> None:
        """Leave these for a later tick: what is known of them stays."""
        subjects = [subject(thing) for thing in things]
        for deferred in subjects:
            self._faults.keep(deferred)
        if subjects:
            self.postpone(f"{len(subjects)} trainings that have not begun wait for their turn")

    def team(self, subject: Subject) -> str:
        """The owner of the subject's asset; the asset's name where it has none."""
        repository = self._context.repository_def
        key = subject.key
        if repository is None or key is None or not repository.asset_graph.has(key):
            return key.to_user_string() if key else ""
        return ", ".join(repository.asset_graph.get(key).owners) or key.to_user_string()

    def visit(self, subject: Subject, act: Callable[[], None]) -> bool:
        """Bring one subject into line; False when that was not done: something is wrong with it, or it rests."""
        if self._faults.rests(subject):
            return False
        try:
            act()
        except Unavailable as error:
            self._faults.keep(subject)
            self.postpone(f"{subject.name}: the launcher or the fleet cannot be asked: {error}")
            return False
        except Exception as error:
            self.fail(subject, error)
            return False
        return True

    def fail(self, subject: Subject, error: Exception) -> None:
        """Show what is wrong with a subject, unless it was shown before."""
        observations = self._faults.add(subject, error)
        self.events += observations
        if observations or subject.key is None:
            trace = "" if isinstance(error, ValueError | OSError) else "\n" + "".join(traceback.format_exception(error))
            self.log.error(f"{subject.name}: {error}{trace}")

    def request(
        self, assets: Sequence[dg.AssetKey], tags: dict[str, str], first: str | None = None, last: str | None = None
    ) -> None:
        """Request a run as `runs.request` describes it. Raises ValueError for an asset that no recipe makes."""
        repository = self._context.repository_def
        for key in assets if repository is not None else ():
            if repository is not None and not repository.asset_graph.has(key):
                raise ValueError(
                    f"found no recipe that makes {key.to_user_string()}; bring the recipe back, or end what is left "
                    "of it with `slipway stop` or `slipway rm`"
                )
        self.requests.append(runs.request(assets, tags, first, last))

    def postpone(self, reason: str, subject: Subject | None = None) -> None:
        """Say what this tick could not do; the next one tries again, or that which follows the subject's rest."""
        if subject is not None:
            self._faults.rest(subject)
        self.log.warning(reason)
        self._postponed.append(reason)

    def result(self) -> dg.SensorResult:
        """What Dagster is given: the reasons for what was postponed too, unless there is something to do."""
        cursor = self._faults.cursor()
        if cursor != (self._context.cursor or ""):
            self._context.update_cursor(cursor)
        idle = not (self.requests or self.events or self.partitions)
        return dg.SensorResult(
            run_requests=self.requests,
            asset_events=self.events,
            dynamic_partitions_requests=self.partitions,
            skip_reason=self._why_idle() if idle and self._postponed else None,
        )

    def _why_idle(self) -> str:
        more = len(self._postponed) - NAMED
        return "; ".join(self._postponed[:NAMED]) + (f"; and {more} more, see the sensor's log" if more > 0 else "")


def _turned(named: list[tuple[Subject, Thing]], first: str) -> list[tuple[Subject, Thing]]:
    """The things in their order, turned so that the subject of this name is the first."""
    start = next((start for start, (who, _) in enumerate(named) if who.name == first), 0)
    return named[start:] + named[:start]
