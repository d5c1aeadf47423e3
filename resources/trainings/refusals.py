"""Rejected starts: if the platform rejects a start, it waits, is retried, and says what is missing.

A missing permission, an operator under upgrade or a missing queue are not the training's fault, and may last seconds or
days. The claimed incarnation stays, the pauses between two attempts grow, and one incident names what a person must
provide. The incident is over once the job has been submitted.
"""

import contextlib
import itertools
import re
from collections.abc import Callable

from slipway.resources.trainings.facts import TrainingFacts, refused_record
from slipway.resources.trainings.records import RefusedStart
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec
from slipway.trainer.record import causes, files, incidents
from slipway.trainer.record.incidents import IncidentRecord

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""In seconds; each pause is twice as long as the one before. An attempt costs a few requests and no node."""
ACTION = "the platform retries the start, with growing pauses"
_DIFFERS = re.compile(r"[\w.-]*\d[\w.-]*")
"""The parts that may differ between two answers with the same meaning: ids, times, counts."""


def note(store: TrainingStore, facts: TrainingFacts, reason: str, by: str, clock: Callable[[], float]) -> None:
    """Record that the start of the newest incarnation was rejected; a new reason is an incident. Raises OSError."""
    assert facts.claim is not None
    _tell(store, facts, reason, by, clock())
    count = facts.refusal.count + 1 if facts.refusal else 1
    path = facts.folder / files.JOBS / refused_record(facts.incarnation)
    codec.replace(path, RefusedStart(reason, count, clock()))


def pause(facts: TrainingFacts, now: float) -> str:
    """Why the next attempt waits at `now`, in seconds since the epoch; "" if it does not wait."""
    refusal = facts.refusal
    if refusal is None:
        return ""
    passed = now - refusal.at
    seconds_left = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(refusal.count - 1, 10)) - passed
    # If this clock is behind that of the process that recorded the rejection, the passed time is unknown.
    return waits_for(refusal) if seconds_left > 0 and passed >= 0 else ""


def waits_for(refusal: RefusedStart) -> str:
    """What a rejected start waits for, for a person."""
    return f"it waits for a person: {refusal.reason}"


def is_open(facts: TrainingFacts, record: IncidentRecord) -> bool:
    """Whether an incident is the one for which the training waits now."""
    refusal = facts.refusal if facts.should_run else None
    of_this_start = facts.claim is not None and record.token == str(facts.claim.token)
    return (
        record.kind == causes.PLATFORM
        and of_this_start
        and refusal is not None
        and _is_same(record.reason, refusal.reason)
    )


def _tell(store: TrainingStore, facts: TrainingFacts, reason: str, by: str, now: float) -> None:
    """Write the incident of this reason, unless there is one."""
    assert facts.claim is not None
    for number in itertools.count():
        record = IncidentRecord(
            str(facts.claim.token),
            causes.PLATFORM,
            reason,
            ACTION,
            by,
            now,
            facts.newest_step,
            survived=True,
            number=number,
        )
        if store.note_incident(record):
            return
        with contextlib.suppress(codec.UndecodableRecord):
            if _is_same(incidents.read(store.folder, record.id).reason, reason):
                return


def _is_same(one: str, other: str) -> bool:
    return _DIFFERS.sub("", one) == _DIFFERS.sub("", other)
