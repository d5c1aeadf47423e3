"""The report of chaos: each fault beside the incident that the platform recorded for it. Pure.

A fault is found when an incident of its training began after it and before the next fault of that training; an incident
that no fault explains is listed too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operations.chaos.course import Injection
from operations.chaos.faults import FAULTS
from trainer.record.incidents import IncidentRecord

EARLIER_SECONDS = 0.5
"""An incident may be dated so much before its fault: the fault is dated when it is begun, by another process."""


@dataclass(frozen=True)
class FaultResult:
    """A fault, and what became of it."""

    injection: Injection
    incident: IncidentRecord | None
    right: bool
    """Whether the incident names the right cause."""
    seconds: float | None
    """From the fault to the incident, by the clock of this machine."""


@dataclass(frozen=True)
class ChaosReport:
    """What chaos found."""

    results: tuple[FaultResult, ...]
    unexplained: tuple[IncidentRecord, ...]
    """Incidents without a fault."""

    @property
    def share_right(self) -> float:
        """The share of faults whose cause was named rightly; 1 without a fault."""
        return sum(each.right for each in self.results) / len(self.results) if self.results else 1.0


def judged(injections: Sequence[Injection], incidents: Mapping[str, Sequence[IncidentRecord]]) -> ChaosReport:
    """Compare faults with the incidents of their trainings, which are given by training."""
    results, used = [], set[tuple[str, str]]()
    for number, injection in enumerate(injections):
        later = [each.at for each in injections[number + 1 :] if each.training == injection.training]
        until = min(later, default=float("inf"))
        of_training = sorted(incidents.get(injection.training, ()), key=lambda each: each.at)
        after = [each for each in of_training if injection.at - EARLIER_SECONDS <= each.at < until]
        free = [each for each in after if (injection.training, each.id) not in used]
        kinds = FAULTS[injection.fault].kinds
        found = next((each for each in free if each.kind in kinds), free[0] if free else None)
        if found:
            used.add((injection.training, found.id))
        right = found is not None and found.kind in kinds
        results.append(FaultResult(injection, found, right, found.at - injection.at if found else None))
    first = min((each.at for each in injections), default=float("inf"))
    left = [
        each
        for training, of_training in incidents.items()
        for each in of_training
        if each.at >= first - EARLIER_SECONDS and (training, each.id) not in used
    ]
    return ChaosReport(tuple(results), tuple(sorted(left, key=lambda each: each.at)))
