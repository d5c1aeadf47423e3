"""Faults: which subjects of a sensor have a problem, which problem was shown last, and when each is tried again.

A fault is shown once, as an observation of its subject, and not again while it is the same. The subject is tried again
after a time that doubles with each failure. All of this is kept in the sensor's cursor, which Dagster keeps beside the
event log: a database that is restored brings back both.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from slipway.assets import subjects
from slipway.assets.subjects import Subject
from slipway.trainer.base import digest, parsing

FIRST_SECONDS, LONGEST_SECONDS = 2.0, 60.0
"""Between a first failure and the next try, and at most."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with one subject."""

    problem_digest: str
    """The digest of the problem that was shown last."""
    failures: int
    """In a row."""
    again: float
    """When it is tried again, in seconds since the epoch by the clock of the control plane."""


class Faults:
    """The faults of one sensor, from tick to tick."""

    def __init__(self, cursor: str | None, sensor: str, clock: Callable[[], float] = time.time) -> None:
        self._sensor = sensor
        self._clock = clock
        self._before = _read(cursor)
        self._now: dict[str, Fault] = {}

    def rests(self, subject: Subject) -> bool:
        """Whether a subject failed a moment ago and is not to be tried yet."""
        fault = self._before.get(subject.name)
        rests = fault is not None and 0 < fault.again - self._clock() <= LONGEST_SECONDS
        if fault is not None and rests:
            self._now[subject.name] = fault
        return rests

    def keep(self, subject: Subject) -> None:
        """The subject was not visited in this tick: what is known of it stays."""
        if fault := self._before.get(subject.name):
            self._now[subject.name] = fault

    def add(self, subject: Subject, error: Exception) -> list[dg.AssetObservation]:
        """Something is wrong with a subject; its observation, unless the same was shown before."""
        before = self._before.get(subject.name)
        problem = subjects.problem(error)
        problem_digest = digest.sha256(problem.encode())[:12]
        self.rest(subject, problem_digest)
        if subject.key is None or (before and before.problem_digest == problem_digest):
            return []
        return [subjects.observation(subject, self._sensor, error)]

    def rest(self, subject: Subject, problem_digest: str = "") -> None:
        """Leave a subject alone for a while, the longer the more often it failed in a row."""
        before = self._before.get(subject.name)
        failures = before.failures + 1 if before else 1
        seconds = min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(failures - 1, 10))
        self._now[subject.name] = Fault(problem_digest, failures, self._clock() + seconds)

    def cursor(self) -> str:
        """What the next tick has to know; empty when nothing is wrong."""
        rows = {name: [fault.problem_digest, fault.failures, fault.again] for name, fault in sorted(self._now.items())}
        return json.dumps(rows) if rows else ""


def _read(cursor: str | None) -> dict[str, Fault]:
    """What the cursor says; nothing where it is not one of ours."""
    try:
        rows = parsing.value(cursor) if cursor else {}
        return {
            name: Fault(str(problem_digest), int(failures), float(again))
            for name, (problem_digest, failures, again) in rows.items()
        }
    except (ValueError, TypeError, AttributeError, OverflowError):
        return {}
