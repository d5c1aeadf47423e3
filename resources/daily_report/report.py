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
    NightFacts,
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
SOON_SECONDS = 86_400.0
"""A tier that is full sooner than this, at the present rate, needs a person today."""


@dataclass(frozen=True)
class MorningItem:
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
class MorningReport:
    """All of a night: what waits for a person first, then what recovers, then the latest. Times as in `MorningItem`."""

    since: float
    until: float
    items: tuple[MorningItem, ...]
    succeeded: tuple[str, ...]
    """Trainings that were finished."""
    stopped: tuple[str, ...]
    """Trainings that a person stopped."""

    @property
    def waiting(self) -> list[MorningItem]:
        """What waits for a person."""
        return [each for each in self.items if each.needs_person]

    @property
    def seconds_lost(self) -> float:
        return sum(each.seconds_lost or 0.0 for each in self.items if each.at >= self.since)

    @property
    def steps_lost(self) -> int:
        return sum(each.steps_lost or 0 for each in self.items if each.at >= self.since)

    @property
    def incidents(self) -> int:
        """How many incidents there were since then."""
        return sum(each.topic == INCIDENT and each.at >= self.since for each in self.items)

    @property
    def sentence(self) -> str:
        """The first thing that a person reads."""
        waits = len(self.waiting)
        todo = f"{waits} {'thing waits' if waits == 1 else 'things wait'} for a person" if waits else "nobody is needed"
        steps = counted(self.steps_lost, "step")
        lost = f"{counted(self.incidents, 'incident')}, {self.seconds_lost:,.0f} s and {steps} lost"
        ended = f"{len(self.succeeded)} finished, {len(self.stopped)} stopped by a person"
        return f"{todo}; {lost}; trainings: {ended}"


def report(facts: NightFacts) -> MorningReport:
    """The report."""
    items = [*_incidents(facts), *_given_up(facts)]
    items += map(_restart, facts.restarts)
    items += map(_damage, facts.damages)
    items += map(_tier_fault, facts.tiers)
    items += map(_verdict, facts.verdicts)
    items += (found for each in facts.nodes if (found := _node(each)))
    items += (found for each in facts.use if (found := _use(each)))
    items += map(_unreadable, facts.unreadable)
    ordered = sorted(items, key=lambda each: (not each.needs_person, not each.going, -each.at, each.id))
    new = [each for each in facts.ends if each.at >= facts.since]
    return MorningReport(
        facts.since,
        facts.until,
        tuple(ordered),
        tuple(each.training for each in new if each.outcome == "succeeded"),
        tuple(each.training for each in new if each.outcome != "succeeded" and each.by_person),
    )


def _incidents(facts: NightFacts) -> Iterator[MorningItem]:
    """Of several incidents after which a training waits for a person, the last one asks for that person."""
    last = {each.training: each.name for each in sorted(facts.incidents, key=lambda each: each.at) if each.todo}
    for each in facts.incidents:
        asks = last.get(each.training) == each.name
        if asks or each.at >= facts.since:
            yield _incident(each, asks)


def _incident(each: IncidentReport, asks: bool) -> MorningItem:
    gone = f"; then it ran{incident_reports.ran_on(each)}" if each.resumed else ""
    return MorningItem(
        id=f"incident.{each.name}",
        topic=INCIDENT,
        subject=each.training,
        cause=each.kind or incident_reports.UNKNOWN,
        what=f"{incident_reports.first_line(each.cause)}, after step {each.step:,}",
        at=each.at,
        done=f"{each.action or 'nothing'}{gone}",
        todo=(each.todo if each.training in each.todo else f"{each.todo} ({each.training})") if asks else "",
        nodes=each.nodes,
        ranks=each.ranks,
        seconds_lost=each.seconds_lost,
        steps_lost=each.steps_lost,
        going=each.state == RECOVERING,
        path=links.incident(each.recipe, each.name),
        command=f"slipway incidents show {each.name}",
    )


def _given_up(facts: NightFacts) -> Iterator[MorningItem]:
    """Trainings that failed for good, and of which no incident asks for a person."""
    asked = {each.training for each in facts.incidents if each.todo}
    for each in facts.ends:
        if each.outcome == "failed" and not each.by_person and each.training not in asked:
            yield _end(each)


def _end(each: TrainingEnd) -> MorningItem:
    left = f"with a checkpoint of step {each.step:,}" if each.step else "without a checkpoint"
    return MorningItem(
        id=f"given-up.{each.training}.{each.at:.0f}",
        topic=TRAINING,
        subject=each.training,
        cause=each.kind or incident_reports.UNKNOWN,
        what=f"it was given up {left}: {incident_reports.first_line(each.reason)}",
        at=each.at,
        done="it is not started again",
        todo=incident_reports.to_do(each.kind, each.recipe, each.training, each.step),
        path=links.training(each.recipe, each.training),
        command=f"slipway show {each.training}",
    )


def _restart(each: RestartAsked) -> MorningItem:
    asked = each.kind == causes.ASKED
    return MorningItem(
        id=f"restart.{each.training}.{each.incarnation}",
        topic=TRAINING,
        subject=each.training,
        cause="stopped and resumed" if asked else "restart",
        what="it was asked to stop, and to go on later" if asked else each.reason,
        at=each.at,
        done="it went on from its newest checkpoint",
        path=links.training(_recipe(each.training), each.training),
    )


def _damage(each: CheckpointDamage) -> MorningItem:
    verify = f"slipway checkpoints verify {each.training}@{each.step}"
    if each.whole_on:
        done = f"readers take the copy on {', '.join(each.whole_on)}"
    elif each.earlier is not None:
        done = f"it is set aside; the newest whole checkpoint is that of step {each.earlier:,}"
    else:
        done = "it is set aside; the training has no other checkpoint, and starts from its beginning"
    needed = each.is_champion and not each.whole_on
    return MorningItem(
        id=f"damage.{each.training}.{each.step}.{'+'.join(each.tiers)}",
        topic=CHECKPOINT,
        subject=f"{each.training}@{each.step}",
        cause="damaged checkpoint",
        what=f"the bytes{' on ' + ' and '.join(each.tiers) if each.tiers else ''} are damaged: {each.reason}",
        at=each.at,
        done=done,
        todo=f"it is the champion's, and no whole copy is left: restore it from a backup, then {verify}; or roll back"
        if needed
        else "",
        path=links.checkpoint(each.recipe, each.training, each.step),
        command=verify,
    )


def _tier_fault(each: TierFault) -> MorningItem:
    what = "could not be read" if each.away else "did not take a copy"
    return MorningItem(
        id=f"tier.{each.tier}.{each.at:.0f}",
        topic=TIER,
        subject=f"tier {each.tier}",
        cause="tier away" if each.away else "not copied",
        what=f"it {what}: {each.reason} ({', '.join(each.trainings)})",
        at=each.at,
        done="it has taken checkpoints since" if each.over else "trainings go on with their other tiers",
        todo="" if each.over else f"see that tier {each.tier} is mounted, can be written, and has room",
    )


def _verdict(each: GateVerdict) -> MorningItem:
    if each.undecided:
        cause, what, todo = "not judged", f"its candidate could not be judged: {each.undecided}", each.undecided
    elif each.failed:
        checks = ", ".join(name.replace("_", " ") for name in each.failed)
        cause, what, todo = "gate rejection", f"its candidate did not pass: {checks}", ""
    else:
        cause, what = "held back", f"its candidate passed, and waits: {each.held}"
        todo = each.held if each.awaits_approval else ""
    return MorningItem(
        id=f"gate.{each.model}.{each.candidate[:12]}.{each.at:.0f}",
        topic=GATE,
        subject=f"model {each.model}",
        cause=cause,
        what=f"{what} ({each.training or each.candidate[:12]})",
        at=each.at,
        done="the champion stays",
        todo=f"model {each.model}: {todo}" if todo else "",
        path=links.training(_recipe(each.training), each.training, "candidate") if each.training else "",
        command=f"slipway models show {each.model}",
    )


def _node(each: NodeRecord) -> MorningItem | None:
    """None for a node that nothing speaks against any more."""
    if each.standing is Standing.HEALTHY:
        return None
    name, dry = each.node, not each.applied
    release = f"then slipway nodes release {name} --why '...'"
    todo = ""
    if each.standing is Standing.REPAIR:
        todo = f"repair {name}, {release}"
    elif each.standing is Standing.QUARANTINED and each.by_hand:
        todo = f"{name} was taken out by hand: when its fault is mended, {release.removeprefix('then ')}"
    elif each.standing is Standing.QUARANTINED and dry:
        todo = f"{name} still gets work: slipway nodes quarantine {name} --why '...', or have quarantine.apply set"
    done = {
        Standing.SUSPECT: "it works on, and is watched",
        Standing.QUARANTINED: "it is only recorded (dry run)" if dry else "it gets no new work, and is diagnosed",
        Standing.DIAGNOSING: "it is being diagnosed",
        Standing.RELEASED: "it works again, on probation",
        Standing.REPAIR: "it is only recorded (dry run)" if dry else "it gets no new work",
    }[each.standing]
    return MorningItem(
        id=f"node.{name}.{each.number}",
        topic=NODE,
        subject=f"node {name}",
        cause=str(each.standing),
        what=f"from {each.was} to {each.standing}: {each.why}",
        at=each.at,
        done=done,
        todo=todo,
        nodes=(name,),
        path=links.node(name),
        command=f"slipway nodes show {name}",
    )


def _use(each: TierUse) -> MorningItem | None:
    """None for a tier that has room."""
    soon = each.seconds_until_full is not None and each.seconds_until_full < SOON_SECONDS
    if not each.is_nearly_full and not soon:
        return None
    hours = f", and full in {each.seconds_until_full / 3600:.1f} h at this rate" if each.seconds_until_full else ""
    return MorningItem(
        id=f"full.{each.name}",
        topic=TIER,
        subject=f"tier {each.name}",
        cause="nearly full",
        what=f"{each.share:.0%} of {each.capacity / 1e9:,.1f} GB are used{hours}",
        at=each.at,
        done="retention removes what no rule keeps",
        todo=f"make room on {each.name}: let trainings keep fewer checkpoints, or remove some (slipway rm)",
        path=links.asset("platform", "storage"),
    )


def _unreadable(each: UnreadableSubject) -> MorningItem:
    return MorningItem(
        id=f"unreadable.{each.name}",
        topic=RECORDS,
        subject=each.name,
        cause="unreadable",
        what=each.why,
        at=0.0,
        done="it is left as it is; everything else goes on",
        todo=f"put right what the message names ({each.name})",
    )


def _recipe(training: str) -> str:
    """The recipe is in a training's id."""
    return training.rpartition("-")[0] or training
