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
        return all(result.incident or result.right or not _kinds(result.injection) for result in self.results)

    @property
    def share_right(self) -> float:
        """The share of faults whose cause was named rightly; 1 without a fault."""
        return sum(result.right for result in self.results) / len(self.results) if self.results else 1.0


def judged(
    injections: Sequence[Injection],
    incidents: Mapping[str, Sequence[IncidentRecord]],
    steps: Mapping[str, Sequence[float]],
) -> ChaosReport:
    """Compare faults with the incidents of their trainings.

    incidents, steps: by training; `steps` are the times at which steps were done, in seconds since the epoch, sorted.
    """
    results = list[FaultResult]()
    unexplained = list[IncidentRecord]()
    first = min((injection.at for injection in injections), default=float("inf")) - EARLIER_SECONDS
    for training in {**incidents, **{injection.training: () for injection in injections}}:
        own = [injection for injection in injections if injection.training == training]
        recorded = sorted(incidents.get(training, ()), key=lambda incident: incident.at)
        unexplained += [incident for incident in recorded if not own and incident.at >= first]
        for event, of_event in _events(own, recorded, steps.get(training, ())):
            named, unnamed = _of_event(event, of_event)
            results += named
            unexplained += unnamed
    results.sort(key=lambda result: result.injection.at)
    return ChaosReport(tuple(results), tuple(sorted(unexplained, key=lambda incident: incident.at)))


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
        (event, [incident for incident in incidents if begin <= incident.at < end])
        for event, begin, end in zip(events, begins, ends, strict=True)
    ]


def _recovered(
    event: Sequence[Injection], incidents: Sequence[IncidentRecord], steps: Sequence[float], at: float
) -> bool:
    """Whether a training had its incident of an event by then, and has done a step since if the incident ended it."""
    if not any(map(_kinds, event)):
        return True
    begin = event[0].at - EARLIER_SECONDS
    last = max(
        (incident for incident in incidents if begin <= incident.at < at),
        key=lambda incident: incident.at,
        default=None,
    )
    if last is None:
        return False
    return last.survived or any(last.at < step < at for step in steps)


def _of_event(
    event: Sequence[Injection], incidents: Sequence[IncidentRecord]
) -> tuple[list[FaultResult], list[IncidentRecord]]:
    """What became of each fault of an event, and the incidents that name none of them."""
    kinds = {kind for injection in event for kind in _kinds(injection)}
    answered = any(incident.kind in kinds for incident in incidents)
    free = list(incidents)
    results = []
    for injection in event:
        own = _kinds(injection)
        right = [
            incident for incident in free if incident.kind in own and incident.at >= injection.at - EARLIER_SECONDS
        ]
        match = right[0] if right else free[0] if free and not answered else None
        if match:
            free.remove(match)
        seconds = match.at - injection.at if match else None
        results.append(FaultResult(injection, match, bool(right) or answered or not (own or match), seconds))
    return results, [incident for incident in free if incident.kind not in kinds]


def _kinds(injection: Injection) -> tuple[str, ...]:
    return FAULTS[injection.fault].kinds
