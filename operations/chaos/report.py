"""The report of chaos: each fault beside the incident that the platform recorded for it. Pure.

A fault is found when an incident of its training began after it and before the next fault of that training. Faults of
which one comes before the training has recovered from the other are one event: an incident that names one of them
answers for all, as a node that has lost its power no longer shows that its network was gone. An incident that names no
fault of its event is listed too. A fault that a training must not notice is right where there is no incident.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipway.operations.chaos.course import Injection
from slipway.operations.chaos.faults import FAULTS
from slipway.trainer.record.incidents import IncidentRecord

EARLIER_SECONDS = 0.5
"""An incident may be dated so much before its fault: the fault is dated when it is begun, by another process."""


@dataclass(frozen=True)
class FaultResult:
    """A fault, and what became of it."""

    injection: Injection
    incident: IncidentRecord | None
    right: bool
    """Whether the incident names the right cause, or another one names that of a fault of the same event."""
    seconds: float | None
    """From the fault to the incident, by the clock of this machine."""


@dataclass(frozen=True)
class ChaosReport:
    """What chaos found."""

    results: tuple[FaultResult, ...]
    unexplained: tuple[IncidentRecord, ...]
    """Incidents without a fault."""

    @property
    def complete(self) -> bool:
        """Whether each fault that leads to an incident has one."""
        return all(each.incident or each.right or not _kinds(each.injection) for each in self.results)

    @property
    def share_right(self) -> float:
        """The share of faults whose cause was named rightly; 1 without a fault."""
        return sum(each.right for each in self.results) / len(self.results) if self.results else 1.0


def judged(
    injections: Sequence[Injection],
    incidents: Mapping[str, Sequence[IncidentRecord]],
    steps: Mapping[str, Sequence[float]],
) -> ChaosReport:
    """Compare faults with the incidents of their trainings.

    incidents, steps: by training; `steps` are the times at which steps were done, in seconds since the epoch, sorted.
    """
    results, left = list[FaultResult](), list[IncidentRecord]()
    first = min((each.at for each in injections), default=float("inf")) - EARLIER_SECONDS
    for training in {**incidents, **{each.training: () for each in injections}}:
        own = [each for each in injections if each.training == training]
        recorded = sorted(incidents.get(training, ()), key=lambda each: each.at)
        left += [each for each in recorded if not own and each.at >= first]
        for event, of_event in _events(own, recorded, steps.get(training, ())):
            named, unnamed = _of_event(event, of_event)
            results += named
            left += unnamed
    results.sort(key=lambda each: each.injection.at)
    return ChaosReport(tuple(results), tuple(sorted(left, key=lambda each: each.at)))


def _events(
    injections: Sequence[Injection], incidents: Sequence[IncidentRecord], steps: Sequence[float]
) -> list[tuple[list[Injection], list[IncidentRecord]]]:
    """The faults of one training by event, each event with the incidents from its first fault to the next event's."""
    events: list[list[Injection]] = []
    for injection in injections:
        if events and not _recovered(events[-1], incidents, steps, injection.at):
            events[-1].append(injection)
        else:
            events.append([injection])
    begins = [event[0].at - EARLIER_SECONDS for event in events]
    ends = [*begins, float("inf")][1:]
    return [
        (event, [each for each in incidents if begin <= each.at < end])
        for event, begin, end in zip(events, begins, ends, strict=True)
    ]


def _recovered(
    event: Sequence[Injection], incidents: Sequence[IncidentRecord], steps: Sequence[float], at: float
) -> bool:
    """Whether a training had its incident of an event by then, and has done a step since if the incident ended it."""
    if not any(map(_kinds, event)):
        return True
    begin = event[0].at - EARLIER_SECONDS
    last = max((each for each in incidents if begin <= each.at < at), key=lambda each: each.at, default=None)
    if last is None:
        return False
    return last.survived or any(last.at < step < at for step in steps)


def _of_event(
    event: Sequence[Injection], incidents: Sequence[IncidentRecord]
) -> tuple[list[FaultResult], list[IncidentRecord]]:
    """What became of each fault of an event, and the incidents that name none of them."""
    kinds = {kind for injection in event for kind in _kinds(injection)}
    answered = any(each.kind in kinds for each in incidents)
    free, results = list(incidents), []
    for injection in event:
        own = _kinds(injection)
        right = [each for each in free if each.kind in own and each.at >= injection.at - EARLIER_SECONDS]
        found = right[0] if right else free[0] if free and not answered else None
        if found:
            free.remove(found)
        seconds = found.at - injection.at if found else None
        results.append(FaultResult(injection, found, bool(right) or answered or not (own or found), seconds))
    return results, [each for each in free if each.kind not in kinds]


def _kinds(injection: Injection) -> tuple[str, ...]:
    return FAULTS[injection.fault].kinds
