"""Transitions of a node's health status. Pure: functions from a record and an event to the next record, or None.

Every function is level-triggered: it returns None if the same event comes again. A person's decision (`by_hand`) always
wins: no process changes it, and no guard prevents it. Only new evidence after a release counts again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from slipway.resources.fleet.health.standing import Evidence, HealthRules, NodeRecord, Standing, Weight
from slipway.trainer.base.units import DAY

WITHHELD = "; quarantine is withheld: "


@dataclass(frozen=True)
class Surroundings:
    """The state of the fleet, for the guards."""

    nodes: int
    """The number of nodes in the fleet."""
    out_of_service: tuple[str, ...]
    """The nodes that get no new work now because of their health."""
    is_exempt: bool = False
    """Whether the node's owner forbids the platform to take it out of service."""


def suspected(
    record: NodeRecord, observed: Iterable[Evidence], around: Surroundings, rules: HealthRules, who: str, now: float
) -> NodeRecord | None:
    """The next record after a check for evidence: new evidence is added, and evidence that is too old is dropped.

    Call it without new evidence too, since a guard may have opened, or a suspicion may have expired.
    """
    since = now - rules.window_days * DAY
    new = [piece for piece in observed if piece.at >= since and not record.knows(piece)]
    recent = tuple(piece for piece in record.evidence if piece.at >= since)
    evidence = (*recent, *new)
    noted = replace(record, evidence=evidence, answered=tuple(piece for piece in record.answered if piece.at >= since))
    if record.standing.out_of_service:
        return _next(noted, record.standing, who, _reasons(new), now, record.by_hand) if new else None
    if not evidence:
        if record.standing is not Standing.SUSPECT:
            return None
        return _next(noted, Standing.HEALTHY, who, "all evidence against it is too old", now)
    if not _is_enough(evidence, rules, on_probation=record.standing is Standing.RELEASED):
        standing = Standing.SUSPECT if _counts(evidence, rules) else record.standing
        return _next(noted, standing, who, _reasons(new), now) if new else None
    refusal = _refusal(record.node, around, rules)
    if refusal:
        if record.standing is Standing.SUSPECT and not new:
            return None
        return _next(noted, Standing.SUSPECT, who, f"{_reasons(evidence)}{WITHHELD}{refusal}", now)
    return replace(_next(noted, Standing.QUARANTINED, who, _reasons(evidence), now), applied=rules.apply)


def is_joining(record: NodeRecord, lost: bool) -> bool:
    """Whether a node must be measured before it gets work, because it is new or lost now."""
    return not record.standing.out_of_service and (lost or not record.number)


def joining(record: NodeRecord, lost: str, is_exempt: bool, who: str, now: float) -> NodeRecord | None:
    """The next record of a new node, or of a node that is lost now; `lost` is the reason, or ""."""
    if not is_joining(record, bool(lost)) or (is_exempt and record.number):
        return None
    if is_exempt:
        return _next(record, Standing.HEALTHY, who, "it is new, and exempt", now)
    why = "a new node must pass a preflight first"
    if lost:
        why = f"it is lost ({lost}), and must pass a preflight when it is back"
    return replace(_next(record, Standing.JOINING, who, why, now), applied=True)


def is_diagnosis_due(record: NodeRecord, rules: HealthRules, now: float) -> bool:
    """Whether a diagnosis should be running. A diagnosis whose process died is repeated."""
    if record.standing is Standing.JOINING:
        return True
    if record.by_hand or not record.applied:
        return False
    if record.standing is Standing.DIAGNOSING:
        return True
    return record.standing is Standing.QUARANTINED and now - record.at >= rules.hold_seconds


def diagnosing(record: NodeRecord, who: str, now: float) -> NodeRecord | None:
    """The next record when a diagnosis begins; None for a node that is not quarantined, which is only measured."""
    if record.standing is not Standing.QUARANTINED or record.by_hand:
        return None
    return _next(record, Standing.DIAGNOSING, who, "the diagnosis has begun", now)


def diagnosed(record: NodeRecord, faults: str, who: str, now: float) -> NodeRecord | None:
    """The next record after a diagnosis: repair if there are `faults`, else back to work on probation."""
    if record.standing not in (Standing.DIAGNOSING, Standing.JOINING):
        return None
    if faults:
        return _next(record, Standing.REPAIR, who, faults, now)
    what = "preflight" if record.standing is Standing.JOINING else "diagnosis"
    return _released(record, who, f"the {what} found no fault", now)


def undiagnosed(record: NodeRecord, why: str, who: str, now: float) -> NodeRecord | None:
    """The next record after a failed diagnosis: the node waits for the next one."""
    if record.standing is Standing.JOINING:
        return _next(record, Standing.JOINING, who, f"the preflight could not be completed: {why}", now)
    if record.standing is not Standing.DIAGNOSING:
        return None
    return _next(record, Standing.QUARANTINED, who, f"the diagnosis could not be completed: {why}", now)


def ran_clean(record: NodeRecord, runs: Iterable[str], rules: HealthRules, who: str, now: float) -> NodeRecord | None:
    """The next record after runs on the node without a fault; enough of them end the probation."""
    new = sorted(set(runs) - set(record.clean))
    if record.standing is not Standing.RELEASED or not new:
        return None
    clean = (*record.clean, *new)
    over = len(clean) >= rules.clean_runs
    why = f"{len(clean)} of {rules.clean_runs} runs without a fault: {', '.join(new)}"
    return _next(replace(record, clean=clean), Standing.HEALTHY if over else record.standing, who, why, now)


def by_hand(record: NodeRecord, standing: Standing, who: str, why: str, now: float, apply: bool = True) -> NodeRecord:
    """The next record after a person's decision. Raises ValueError for a status that a person cannot set."""
    if standing is Standing.RELEASED:
        return replace(_released(record, who, why, now), by_hand=True, applied=apply)
    if standing not in (Standing.QUARANTINED, Standing.REPAIR):
        raise ValueError(f"node {record.node}: found {standing}, expected quarantined, repair or released")
    return replace(_next(record, standing, who, why, now, by_hand=True), applied=apply)


def _released(record: NodeRecord, who: str, why: str, now: float) -> NodeRecord:
    """The record of a released node: its evidence no longer counts, and its probation begins."""
    answered = (*record.answered, *record.evidence)
    return _next(replace(record, evidence=(), answered=answered, clean=()), Standing.RELEASED, who, why, now)


def _next(record: NodeRecord, standing: Standing, who: str, why: str, now: float, by_hand: bool = False) -> NodeRecord:
    return replace(
        record,
        number=record.number + 1,
        standing=standing,
        was=record.standing,
        who=who,
        why=why,
        at=now,
        by_hand=by_hand,
        applied=record.applied or not standing.out_of_service,
    )


def _is_enough(evidence: Iterable[Evidence], rules: HealthRules, on_probation: bool) -> bool:
    """Whether the evidence is sufficient for quarantine. On probation, one piece of evidence that counts is."""
    counting = _counts(evidence, rules)
    severe = any(piece.weight is Weight.SEVERE for piece in counting)
    return severe or len(counting) >= (1 if on_probation else rules.incidents)


def _counts(evidence: Iterable[Evidence], rules: HealthRules) -> list[Evidence]:
    """The evidence that counts. A fault that a program may cause counts only if several trainings had it."""
    pieces = list(evidence)
    trainings: dict[str, set[str]] = {}
    for piece in pieces:
        trainings.setdefault(piece.fault, set()).add(piece.training)
    return [
        counted
        for counted in pieces
        if counted.weight is not Weight.PROGRAM or len(trainings[counted.fault]) >= rules.trainings
    ]


def _refusal(node: str, around: Surroundings, rules: HealthRules) -> str:
    """Why a guard keeps the node in service, or ""."""
    if around.is_exempt:
        return "it is exempt"
    others = [other for other in around.out_of_service if other != node]
    limit = rules.limit(around.nodes)
    if len(others) < limit:
        return ""
    return f"{', '.join(others)} are out of service, and at most {limit} of {around.nodes} nodes may be"


def _reasons(evidence: Iterable[Evidence]) -> str:
    return "; ".join(piece.why for piece in evidence)
