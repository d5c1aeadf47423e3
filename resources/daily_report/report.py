"""The report of a night, from its facts. Pure.

An item has something to do (`todo`) exactly where a person is needed; only such an item is red on the page. What the
platform has dealt with, and what a person or a policy decided (a stop, a restart, a rejection), is never red.
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

INCIDENT, TRAINING, CHECKPOINT, TIER, GATE, NODE, RECORDS = (
    "incident",
    "training",
    "checkpoint",
    "tier",
    "gate",
    "node",
    "records",
)
SOON_SECONDS = DAY
"""A tier that is full sooner than this, at the present rate, needs a person today."""


@dataclass(frozen=True)
class ReportItem:
    """One thing that happened, or that waits."""

    id: str
    """Names it for ever; what is new about it has another id."""
    topic: str
    subject: str
    """The training, model, node or tier that it is about."""
    cause: str
    """The class of its cause, or what kind of event it is, in a word or two."""
    what: str
    """What happened, in a sentence."""
    at: float
    """Seconds since the epoch."""
    done: str
    """What the platform did about it."""
    todo: str = ""
    """What a person is to do; empty where nobody is needed."""
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    seconds_lost: float | None = None
    steps_lost: int | None = None
    going: bool = False
    """Whether it recovers at this moment."""
    path: str = ""
    """Where the UI shows it: a path on the webserver."""
    command: str = ""
    """The command that prints the evidence."""

    @property
    def needs_person(self) -> bool:
        return bool(self.todo)

    @property
    def where(self) -> str:
        """Nodes and ranks; empty where none is known."""
        return ", ".join([*self.nodes, *(f"rank {rank}" for rank in self.ranks)])

    @property
    def cost(self) -> str:
        """Seconds and steps lost, as far as they are known; empty where none are."""
        parts = [f"{self.seconds_lost:,.1f} s"] if self.seconds_lost is not None else []
        parts += [f"{self.steps_lost:,} step{'' if self.steps_lost == 1 else 's'}"] if self.steps_lost else []
        return " and ".join(parts) + " lost" if parts else ""


@dataclass(frozen=True)
class DailyReport:
    """All of a night: what waits for a person first, then what recovers, then the latest. Times as in `ReportItem`."""

    since: float
    until: float
    items: tuple[ReportItem, ...]
    succeeded: tuple[str, ...]
    """Trainings that were finished."""
    stopped: tuple[str, ...]
    """Trainings that a person stopped."""

    @property
    def waiting(self) -> list[ReportItem]:
        """What waits for a person."""
        return [item for item in self.items if item.needs_person]

    @property
    def seconds_lost(self) -> float:
        return sum(item.seconds_lost or 0.0 for item in self.items if item.at >= self.since)

    @property
    def steps_lost(self) -> int:
        return sum(item.steps_lost or 0 for item in self.items if item.at >= self.since)

    @property
    def incidents(self) -> int:
        """How many incidents there were since then."""
        return sum(item.topic == INCIDENT and item.at >= self.since for item in self.items)

    @property
    def sentence(self) -> str:
        """The first thing that a person reads."""
        waiting_count = len(self.waiting)
        todo = (
            f"{waiting_count} {'thing waits' if waiting_count == 1 else 'things wait'} for a person"
            if waiting_count
            else "nobody is needed"
        )
        steps = counted(self.steps_lost, "step")
        lost = f"{counted(self.incidents, 'incident')}, {self.seconds_lost:,.0f} s and {steps} lost"
        ended = f"{len(self.succeeded)} finished, {len(self.stopped)} stopped by a person"
        return f"{todo}; {lost}; trainings: {ended}"


def report(facts: ReportFacts) -> DailyReport:
    """The report."""
    items = [*_incidents(facts), *_given_up(facts)]
    items += map(_restart, facts.restarts)
    items += map(_damage, facts.damages)
    items += map(_tier_fault, facts.tiers)
    items += map(_verdict, facts.verdicts)
    items += (item_or_none for node in facts.nodes if (item_or_none := _node(node)))
    items += (item_or_none for tier in facts.use if (item_or_none := _use(tier)))
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
    """Of several incidents after which a training waits for a person, the last one asks for that person."""
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
    gone = f"; then it ran{incident_reports.ran_on(incident)}" if incident.resumed else ""
    return ReportItem(
        id=f"incident.{incident.name}",
        topic=INCIDENT,
        subject=incident.training,
        cause=incident.kind or incident_reports.UNKNOWN,
        what=f"{incident_reports.first_line(incident.cause)}, after step {incident.step:,}",
        at=incident.at,
        done=f"{incident.action or 'nothing'}{gone}",
        todo=(incident.todo if incident.training in incident.todo else f"{incident.todo} ({incident.training})")
        if asks
        else "",
        nodes=incident.nodes,
        ranks=incident.ranks,
        seconds_lost=incident.seconds_lost,
        steps_lost=incident.steps_lost,
        going=incident.state == RECOVERING,
        path=links.incident(incident.recipe, incident.name),
        command=f"slipway incidents show {incident.name}",
    )


def _given_up(facts: ReportFacts) -> Iterator[ReportItem]:
    """Trainings that failed for good, and of which no incident asks for a person."""
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
        what=f"it was given up {remainder}: {incident_reports.first_line(end.reason)}",
        at=end.at,
        done="it is not started again",
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
        what="it was asked to stop, and to go on later" if was_asked else restart.reason,
        at=restart.at,
        done="it went on from its newest checkpoint",
        path=links.training(_recipe(restart.training), restart.training),
    )


def _damage(damage: CheckpointDamage) -> ReportItem:
    verify = f"slipway checkpoints verify {damage.training}@{damage.step}"
    if damage.whole_on:
        done = f"readers take the copy on {', '.join(damage.whole_on)}"
    elif damage.earlier is not None:
        done = f"it is set aside; the newest whole checkpoint is that of step {damage.earlier:,}"
    else:
        done = "it is set aside; the training has no other checkpoint, and starts from its beginning"
    needed = damage.is_champion and not damage.whole_on
    return ReportItem(
        id=f"damage.{damage.training}.{damage.step}.{'+'.join(damage.tiers)}",
        topic=CHECKPOINT,
        subject=f"{damage.training}@{damage.step}",
        cause="damaged checkpoint",
        what=f"the bytes{' on ' + ' and '.join(damage.tiers) if damage.tiers else ''} are damaged: {damage.reason}",
        at=damage.at,
        done=done,
        todo=f"it is the champion's, and no whole copy is left: restore it from a backup, then {verify}; or roll back"
        if needed
        else "",
        path=links.checkpoint(damage.recipe, damage.training, damage.step),
        command=verify,
    )


def _tier_fault(fault: TierFault) -> ReportItem:
    what = "could not be read" if fault.away else "did not take a copy"
    return ReportItem(
        id=f"tier.{fault.tier}.{fault.at:.0f}",
        topic=TIER,
        subject=f"tier {fault.tier}",
        cause="tier away" if fault.away else "not copied",
        what=f"it {what}: {fault.reason} ({', '.join(fault.trainings)})",
        at=fault.at,
        done="it has taken checkpoints since" if fault.over else "trainings go on with their other tiers",
        todo="" if fault.over else f"see that tier {fault.tier} is mounted, can be written, and has room",
    )


def _verdict(verdict: GateVerdict) -> ReportItem:
    if verdict.undecided:
        cause, what, todo = "not judged", f"its candidate could not be judged: {verdict.undecided}", verdict.undecided
    elif verdict.failed:
        checks = ", ".join(name.replace("_", " ") for name in verdict.failed)
        cause, what, todo = "gate rejection", f"its candidate did not pass: {checks}", ""
    else:
        cause, what = "held back", f"its candidate passed, and waits: {verdict.hold}"
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
    """None for a node that nothing speaks against any more."""
    if node.standing is Standing.HEALTHY:
        return None
    name = node.node
    dry = not node.applied
    release = f"then slipway nodes release {name} --why '...'"
    todo = ""
    if node.standing is Standing.REPAIR:
        todo = f"repair {name}, {release}"
    elif node.standing is Standing.QUARANTINED and node.by_hand:
        todo = f"{name} was taken out by hand: when its fault is mended, {release.removeprefix('then ')}"
    elif node.standing is Standing.QUARANTINED and dry:
        todo = f"{name} still gets work: slipway nodes quarantine {name} --why '...', or have quarantine.apply set"
    done = {
        Standing.SUSPECT: "it works on, and is watched",
        Standing.QUARANTINED: "it is only recorded (dry run)" if dry else "it gets no new work, and is diagnosed",
        Standing.DIAGNOSING: "it is being diagnosed",
        Standing.RELEASED: "it works again, on probation",
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
    """None for a tier that has room."""
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
        done="retention removes what no rule keeps",
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
        done="it is left as it is; everything else goes on",
        todo=f"put right what the message names ({subject.name})",
    )


def _recipe(training: str) -> str:
    """The recipe is in a training's id."""
    return training.rpartition("-")[0] or training
