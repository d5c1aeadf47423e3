"""The daily report, from its facts. Pure.

An item has a `todo` exactly if a person is needed; only such items are red on the page. What the platform has handled,
and what a person or a policy decided (a stop, a restart, a rejection), is never red.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from slipway.resources import links
from slipway.resources.daily_report.facts import (
    CheckpointDamage,
    GateVerdict,
    ReportFacts,
    RestartAsked,
    TierFault,
    TierUse,
    TrainingEnd,
    UnreadableSubject,
)
from slipway.resources.fleet.health.standing import NodeRecord, Standing
from slipway.resources.trainings import incident_reports
from slipway.resources.trainings.incident_reports import RECOVERING, IncidentReport
from slipway.trainer.base.quantities import counted
from slipway.trainer.base.units import DAY, HOUR
from slipway.trainer.record import causes

INCIDENT = "incident"
TRAINING = "training"
CHECKPOINT = "checkpoint"
TIER = "tier"
GATE = "gate"
NODE = "node"
RECORDS = "records"
SOON_SECONDS = DAY
"""A tier that will be full sooner than this, at the present rate, needs a person today."""


@dataclass(frozen=True)
class ReportItem:
    """One event, or one thing that waits for a person."""

    id: str
    """The permanent id; a new development has another id."""
    topic: str
    subject: str
    """The training, model, node or tier."""
    cause: str
    """The cause of an incident, else the kind of event, in a word or two."""
    what: str
    """What happened, in a sentence."""
    at: float
    """Seconds since the epoch."""
    done: str
    """What the platform did about it."""
    todo: str = ""
    """What a person must do, or ""."""
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    seconds_lost: float | None = None
    steps_lost: int | None = None
    going: bool = False
    """Whether it is recovering now."""
    path: str = ""
    """Its page in the UI: a path on the webserver."""
    command: str = ""
    """The command that prints the evidence."""

    @property
    def needs_person(self) -> bool:
        return bool(self.todo)

    @property
    def where(self) -> str:
        """The nodes and ranks, or "" if unknown."""
        return ", ".join([*self.nodes, *(f"rank {rank}" for rank in self.ranks)])

    @property
    def cost(self) -> str:
        """The seconds and steps lost, or "" if unknown."""
        parts = list[str]()
        if self.seconds_lost is not None:
            parts.append(f"{self.seconds_lost:,.1f} s")
        if self.steps_lost:
            parts.append(counted(self.steps_lost, "step"))
        return f"{' and '.join(parts)} lost" if parts else ""


@dataclass(frozen=True)
class DailyReport:
    """A whole report: first what waits for a person, then what recovers, then the rest, the newest first."""

    since: float
    until: float
    items: tuple[ReportItem, ...]
    succeeded: tuple[str, ...]
    """Trainings that finished."""
    stopped: tuple[str, ...]
    """Trainings that a person stopped."""

    @property
    def waiting(self) -> list[ReportItem]:
        """The items that need a person."""
        return [item for item in self.items if item.needs_person]

    @property
    def seconds_lost(self) -> float:
        return sum(item.seconds_lost or 0.0 for item in self.items if item.at >= self.since)

    @property
    def steps_lost(self) -> int:
        return sum(item.steps_lost or 0 for item in self.items if item.at >= self.since)

    @property
    def incidents(self) -> int:
        """The number of incidents in the period."""
        return sum(item.topic == INCIDENT and item.at >= self.since for item in self.items)

    @property
    def sentence(self) -> str:
        """The summary at the top of the report."""
        todo = "nothing waits for a person"
        if self.waiting:
            todo = f"{counted(len(self.waiting), 'thing waits', 'things wait')} for a person"
        steps = counted(self.steps_lost, "step")
        lost = f"{counted(self.incidents, 'incident')}, {self.seconds_lost:,.0f} s and {steps} lost"
        ended = f"{len(self.succeeded)} finished, {len(self.stopped)} stopped by a person"
        return f"{todo}; {lost}; trainings: {ended}"


def report(facts: ReportFacts) -> DailyReport:
    """The report of these facts."""
    items = [*_incidents(facts), *_given_up(facts)]
    items += map(_restart, facts.restarts)
    items += map(_damage, facts.damages)
    items += map(_tier_fault, facts.tiers)
    items += map(_verdict, facts.verdicts)
    items += filter(None, map(_node, facts.nodes))
    items += filter(None, map(_use, facts.use))
    items += map(_unreadable, facts.unreadable)
    ordered = sorted(items, key=lambda item: (not item.needs_person, not item.going, -item.at, item.id))
    new = [end for end in facts.ends if end.at >= facts.since]
    return DailyReport(
        facts.since,
        facts.until,
        tuple(ordered),
        tuple(end.training for end in new if end.outcome == "succeeded"),
        tuple(end.training for end in new if end.outcome != "succeeded" and end.by_person),
    )


def _incidents(facts: ReportFacts) -> Iterator[ReportItem]:
    """The items of incidents. If several incidents of a training need a person, only the last one has the todo."""
    last = {
        incident.training: incident.name
        for incident in sorted(facts.incidents, key=lambda incident: incident.at)
        if incident.todo
    }
    for incident in facts.incidents:
        asks = last.get(incident.training) == incident.name
        if asks or incident.at >= facts.since:
            yield _incident(incident, asks)


def _incident(incident: IncidentReport, asks: bool) -> ReportItem:
    done = incident.action or "nothing"
    if incident.resumed:
        done = f"{done}; then it ran{incident_reports.ran_on(incident)}"
    todo = ""
    if asks:
        todo = incident.todo if incident.training in incident.todo else f"{incident.todo} ({incident.training})"
    return ReportItem(
        id=f"incident.{incident.name}",
        topic=INCIDENT,
        subject=incident.training,
        cause=incident.kind or incident_reports.UNKNOWN,
        what=f"{incident_reports.first_line(incident.cause)}, after step {incident.step:,}",
        at=incident.at,
        done=done,
        todo=todo,
        nodes=incident.nodes,
        ranks=incident.ranks,
        seconds_lost=incident.seconds_lost,
        steps_lost=incident.steps_lost,
        going=incident.state == RECOVERING,
        path=links.incident(incident.recipe, incident.name),
        command=f"slipway incidents show {incident.name}",
    )


def _given_up(facts: ReportFacts) -> Iterator[ReportItem]:
    """The items of trainings that failed for good, unless an incident already asks for a person."""
    asking_trainings = {incident.training for incident in facts.incidents if incident.todo}
    for end in facts.ends:
        if end.outcome == "failed" and not end.by_person and end.training not in asking_trainings:
            yield _end(end)


def _end(end: TrainingEnd) -> ReportItem:
    remainder = f"with a checkpoint of step {end.step:,}" if end.step else "without a checkpoint"
    return ReportItem(
        id=f"given-up.{end.training}.{end.at:.0f}",
        topic=TRAINING,
        subject=end.training,
        cause=end.kind or incident_reports.UNKNOWN,
        what=f"the training failed for good {remainder}: {incident_reports.first_line(end.reason)}",
        at=end.at,
        done="the platform does not start it again",
        todo=incident_reports.to_do(end.kind, end.recipe, end.training, end.step),
        path=links.training(end.recipe, end.training),
        command=f"slipway show {end.training}",
    )


def _restart(restart: RestartAsked) -> ReportItem:
    was_asked = restart.kind == causes.STOP_REQUESTED
    return ReportItem(
        id=f"restart.{restart.training}.{restart.incarnation}",
        topic=TRAINING,
        subject=restart.training,
        cause="stopped and resumed" if was_asked else "restart",
        what="it was stopped on request, to go on later" if was_asked else restart.reason,
        at=restart.at,
        done="it went on from its newest checkpoint",
        path=links.training(_recipe(restart.training), restart.training),
    )


def _damage(damage: CheckpointDamage) -> ReportItem:
    verify = f"slipway checkpoints verify {damage.training}@{damage.step}"
    if damage.whole_on:
        done = f"readers use the intact copy on {', '.join(damage.whole_on)}"
    elif damage.earlier is not None:
        done = f"it is set aside; the newest intact checkpoint is that of step {damage.earlier:,}"
    else:
        done = "it is set aside; the training has no other checkpoint, and starts from its beginning"
    todo = ""
    if damage.is_champion and not damage.whole_on:
        todo = f"the champion has no intact copy left: restore it from a backup, then {verify}; or roll back"
    where = f" on {' and '.join(damage.tiers)}" if damage.tiers else ""
    return ReportItem(
        id=f"damage.{damage.training}.{damage.step}.{'+'.join(damage.tiers)}",
        topic=CHECKPOINT,
        subject=f"{damage.training}@{damage.step}",
        cause="damaged checkpoint",
        what=f"the bytes{where} are damaged: {damage.reason}",
        at=damage.at,
        done=done,
        todo=todo,
        path=links.checkpoint(damage.recipe, damage.training, damage.step),
        command=verify,
    )


def _tier_fault(fault: TierFault) -> ReportItem:
    what = "could not be read" if fault.away else "did not accept a copy"
    return ReportItem(
        id=f"tier.{fault.tier}.{fault.at:.0f}",
        topic=TIER,
        subject=f"tier {fault.tier}",
        cause="tier away" if fault.away else "not copied",
        what=f"it {what}: {fault.reason} ({', '.join(fault.trainings)})",
        at=fault.at,
        done="it has accepted checkpoints since" if fault.over else "trainings go on with their other tiers",
        todo="" if fault.over else f"check that tier {fault.tier} is mounted, writable, and has room",
    )


def _verdict(verdict: GateVerdict) -> ReportItem:
    if verdict.undecided:
        cause = "not judged"
        what = f"its candidate could not be judged: {verdict.undecided}"
        todo = verdict.undecided
    elif verdict.failed:
        checks = ", ".join(name.replace("_", " ") for name in verdict.failed)
        cause = "gate rejection"
        what = f"its candidate did not pass: {checks}"
        todo = ""
    else:
        cause = "held back"
        what = f"its candidate passed, but waits: {verdict.hold}"
        todo = verdict.hold if verdict.awaits_approval else ""
    return ReportItem(
        id=f"gate.{verdict.model}.{verdict.candidate[:12]}.{verdict.at:.0f}",
        topic=GATE,
        subject=f"model {verdict.model}",
        cause=cause,
        what=f"{what} ({verdict.training or verdict.candidate[:12]})",
        at=verdict.at,
        done="the champion stays",
        todo=f"model {verdict.model}: {todo}" if todo else "",
        path=links.training(_recipe(verdict.training), verdict.training, "candidate") if verdict.training else "",
        command=f"slipway models show {verdict.model}",
    )


def _node(node: NodeRecord) -> ReportItem | None:
    """The item of a node; None for a healthy node."""
    if node.standing is Standing.HEALTHY:
        return None
    name = node.node
    dry = not node.applied
    release = f"then slipway nodes release {name} --why '...'"
    todo = ""
    if node.standing is Standing.REPAIR:
        todo = f"repair {name}, {release}"
    elif node.standing is Standing.QUARANTINED and node.by_hand:
        todo = f"a person quarantined {name}: when it is repaired, {release.removeprefix('then ')}"
    elif node.standing is Standing.QUARANTINED and dry:
        todo = f"{name} still gets work: slipway nodes quarantine {name} --why '...', or set quarantine.apply"
    done = {
        Standing.SUSPECT: "it still gets work, and is watched",
        Standing.QUARANTINED: "it is only recorded (dry run)" if dry else "it gets no new work, and is diagnosed",
        Standing.DIAGNOSING: "it is being diagnosed",
        Standing.RELEASED: "it gets work again, on probation",
        Standing.REPAIR: "it is only recorded (dry run)" if dry else "it gets no new work",
    }[node.standing]
    return ReportItem(
        id=f"node.{name}.{node.number}",
        topic=NODE,
        subject=f"node {name}",
        cause=str(node.standing),
        what=f"from {node.was} to {node.standing}: {node.why}",
        at=node.at,
        done=done,
        todo=todo,
        nodes=(name,),
        path=links.node(name),
        command=f"slipway nodes show {name}",
    )


def _use(tier: TierUse) -> ReportItem | None:
    """The item of a tier; None if it has room."""
    soon = tier.seconds_until_full is not None and tier.seconds_until_full < SOON_SECONDS
    if not tier.is_nearly_full and not soon:
        return None
    hours = f", and full in {tier.seconds_until_full / HOUR:.1f} h at this rate" if tier.seconds_until_full else ""
    return ReportItem(
        id=f"full.{tier.name}",
        topic=TIER,
        subject=f"tier {tier.name}",
        cause="nearly full",
        what=f"{tier.share:.0%} of {tier.capacity / 1e9:,.1f} GB are used{hours}",
        at=tier.at,
        done="the retention removes what no rule keeps",
        todo=f"make room on {tier.name}: let trainings keep fewer checkpoints, or remove some (slipway rm)",
        path=links.asset("platform", "storage"),
    )


def _unreadable(subject: UnreadableSubject) -> ReportItem:
    return ReportItem(
        id=f"unreadable.{subject.name}",
        topic=RECORDS,
        subject=subject.name,
        cause="unreadable",
        what=subject.why,
        at=0.0,
        done="nothing; everything else goes on",
        todo=f"repair what the message names ({subject.name})",
    )


def _recipe(training: str) -> str:
    """The recipe's name, from the training's id."""
    return training.rpartition("-")[0] or training
