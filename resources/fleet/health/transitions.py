"""Transitions: what follows for a node from what is known of it. Pure: a record and an event in, a record or None out.

Every function is level-triggered: the same event twice gives None the second time. `by_hand` always wins: what a person
decided is changed by no process, whatever the guards say; only new evidence after a release counts again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from slipway.resources.fleet.health.standing import Evidence, HealthRules, NodeRecord, Standing, Weight
from slipway.trainer.base.units import DAY

WITHHELD = "; quarantine is withheld: "


@dataclass(frozen=True)
class Surroundings:
    """What the guards look at beside the node."""

    nodes: int
    """How many the fleet has."""
    out_of_service: tuple[str, ...]
    """Those that get no new work now, by their standing."""
    is_exempt: bool = False
    """Whether the node's owner said that no process takes it out of service."""


def suspected(
    record: NodeRecord, observed: Iterable[Evidence], around: Surroundings, rules: HealthRules, who: str, now: float
) -> NodeRecord | None:
    """After evidence was looked for: what is new is noted, and what is too old is dropped.

    Call it also with none: a guard may be open by now, and a suspicion may have expired.
    """
    since = now - rules.window_days * DAY
    new = [piece for piece in observed if piece.at >= since and not record.knows(piece)]
    recent = tuple(piece for piece in record.evidence if piece.at >= since)
    evidence = (*recent, *new)
    noted = replace(record, evidence=evidence, answered=tuple(piece for piece in record.answered if piece.at >= since))
    if record.standing.out_of_service:
        return _next(noted, record.standing, who, _reasons(new), now, record.by_hand) if new else None
    if not evidence:
        expired = record.standing is Standing.SUSPECT
        return _next(noted, Standing.HEALTHY, who, "what spoke against it is too old", now) if expired else None
    if not _is_enough(evidence, rules, on_probation=record.standing is Standing.RELEASED):
        standing = Standing.SUSPECT if _counts(evidence, rules) else record.standing
        return _next(noted, standing, who, _reasons(new), now) if new else None
    if refusal := _refusal(record.node, around, rules):
        is_noted = record.standing is Standing.SUSPECT and not new
        return (
            None if is_noted else _next(noted, Standing.SUSPECT, who, f"{_reasons(evidence)}{WITHHELD}{refusal}", now)
        )
    return replace(_next(noted, Standing.QUARANTINED, who, _reasons(evidence), now), applied=rules.apply)


def is_joining(record: NodeRecord, lost: bool) -> bool:
    """Whether a node must be measured before it works: it is new, or is lost now."""
    return not record.standing.out_of_service and (lost or not record.number)


def joining(record: NodeRecord, lost: str, is_exempt: bool, who: str, now: float) -> NodeRecord | None:
    """After a node was seen that is new, or that is `lost` (why) now."""
    if not is_joining(record, bool(lost)) or (is_exempt and record.number):
        return None
    if is_exempt:
        return _next(record, Standing.HEALTHY, who, "it is new, and exempt", now)
    why = f"it is lost ({lost}), and measured when it is back" if lost else "it is new, and measured before it works"
    return replace(_next(record, Standing.JOINING, who, why, now), applied=True)


def is_diagnosis_due(record: NodeRecord, rules: HealthRules, now: float) -> bool:
    """Whether a diagnosis should be under way: one whose process died is made again."""
    if record.standing is Standing.JOINING:
        return True
    if record.by_hand or not record.applied:
        return False
    if record.standing is Standing.DIAGNOSING:
        return True
    return record.standing is Standing.QUARANTINED and now - record.at >= rules.hold_seconds


def diagnosing(record: NodeRecord, who: str, now: float) -> NodeRecord | None:
    """After a diagnosis has begun; only a quarantined node is under diagnosis, any other is merely measured."""
    if record.standing is not Standing.QUARANTINED or record.by_hand:
        return None
    return _next(record, Standing.DIAGNOSING, who, "the diagnosis has begun", now)


def diagnosed(record: NodeRecord, faults: str, who: str, now: float) -> NodeRecord | None:
    """After a diagnosis: back to work on probation, or to repair; `faults` is what was found, empty for nothing."""
    if record.standing not in (Standing.DIAGNOSING, Standing.JOINING):
        return None
    if faults:
        return _next(record, Standing.REPAIR, who, faults, now)
    what = "preflight" if record.standing is Standing.JOINING else "diagnosis"
    return _released(record, who, f"the {what} found no fault", now)


def undiagnosed(record: NodeRecord, why: str, who: str, now: float) -> NodeRecord | None:
    """After a diagnosis that could not be made: the node waits for the next one."""
    if record.standing is Standing.JOINING:
        return _next(record, Standing.JOINING, who, f"the preflight could not be made: {why}", now)
    if record.standing is not Standing.DIAGNOSING:
        return None
    return _next(record, Standing.QUARANTINED, who, f"the diagnosis could not be made: {why}", now)


def ran_clean(record: NodeRecord, runs: Iterable[str], rules: HealthRules, who: str, now: float) -> NodeRecord | None:
    """After runs on the node that nothing spoke against; enough of them end the probation."""
    new = sorted(set(runs) - set(record.clean))
    if record.standing is not Standing.RELEASED or not new:
        return None
    clean = (*record.clean, *new)
    over = len(clean) >= rules.clean_runs
    why = f"{len(clean)} of {rules.clean_runs} runs without a fault: {', '.join(new)}"
    return _next(replace(record, clean=clean), Standing.HEALTHY if over else record.standing, who, why, now)


def by_hand(record: NodeRecord, standing: Standing, who: str, why: str, now: float, apply: bool = True) -> NodeRecord:
    """After a person decided. Raises ValueError for a standing that only a process gives."""
    if standing is Standing.RELEASED:
        return replace(_released(record, who, why, now), by_hand=True, applied=apply)
    if standing not in (Standing.QUARANTINED, Standing.REPAIR):
        raise ValueError(f"node {record.node}: found {standing}, expected quarantined, repair or released")
    return replace(_next(record, standing, who, why, now, by_hand=True), applied=apply)


def _released(record: NodeRecord, who: str, why: str, now: float) -> NodeRecord:
    """What spoke against the node is answered, and its probation begins."""
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
    """Whether this puts the node into quarantine; on probation, anything that counts does."""
    counting = _counts(evidence, rules)
    severe = any(piece.weight is Weight.SEVERE for piece in counting)
    return severe or len(counting) >= (1 if on_probation else rules.incidents)


def _counts(evidence: Iterable[Evidence], rules: HealthRules) -> list[Evidence]:
    """What counts against the machine: a program's fault only where several trainings had the same one."""
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
    """Why a guard keeps the node in service; empty where none does."""
    if around.is_exempt:
        return "it is exempt"
    others = [other for other in around.out_of_service if other != node]
    limit = rules.limit(around.nodes)
    if len(others) < limit:
        return ""
    return f"{', '.join(others)} are out of service, and at most {limit} of {around.nodes} nodes may be"


def _reasons(evidence: Iterable[Evidence]) -> str:
    return "; ".join(piece.why for piece in evidence)
