"""Reading for the daily report: its facts, from the records on the durable tier. Read-only.

Each subject is read separately: unreadable records of one subject become a fact, and the others are still read. Trials
are skipped, since their sweep decides about them.

A caller that reads repeatedly keeps a `ReportReader`: it reads a training that is over again only if its folder has
changed.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from slipway.resources.errors import Unavailable
from slipway.resources.fleet.health.register import FOLDER, NodeRegister
from slipway.resources.fleet.health.standing import NodeRecord
from slipway.resources.trainings import incident_reports
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.incident_reports import IncidentReport
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.base import journal, listing
from slipway.trainer.checkpoint.retention import forecast
from slipway.trainer.checkpoint.retention.forecast import Sample
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.tier import DURABLE
from slipway.trainer.record import commits, files, removals

MODELS = "models"
STORAGE = "storage"
JOURNAL = ".journal"


@dataclass
class _FactsCollector:
    """The facts that have been read so far."""

    since: float
    champions: frozenset[str] = frozenset()
    incidents: list[IncidentReport] = field(default_factory=list)
    ends: list[TrainingEnd] = field(default_factory=list)
    restarts: list[RestartAsked] = field(default_factory=list)
    damages: list[CheckpointDamage] = field(default_factory=list)
    copies: list[tuple[replicas.CopyFault, str]] = field(default_factory=list)
    """Failed reads and writes of a tier, each with the training."""
    taken: dict[str, float] = field(default_factory=dict)
    """The time of the newest commit on each tier."""
    verdicts: list[GateVerdict] = field(default_factory=list)
    nodes: list[NodeRecord] = field(default_factory=list)
    use: list[TierUse] = field(default_factory=list)
    unreadable: list[UnreadableSubject] = field(default_factory=list)

    def visit(self, name: str, read: Callable[[], None]) -> None:
        """Read one subject; an error becomes a fact and does not stop the others from being read."""
        try:
            read()
        except (ValueError, OSError, Unavailable) as error:
            self.unreadable.append(UnreadableSubject(name, str(error)))

    def add(self, one: "_FactsCollector") -> None:
        """Add the facts of one training that belong to this report."""
        since = self.since
        self.incidents += [incident for incident in one.incidents if incident.at >= since or incident.todo]
        self.ends += [end for end in one.ends if end.at >= since or (end.outcome == "failed" and not end.by_person)]
        self.restarts += [restart for restart in one.restarts if restart.at >= since]
        self.damages += [
            damage for damage in one.damages if damage.at >= since or (damage.is_champion and not damage.whole_on)
        ]
        self.copies += [(fault, training) for fault, training in one.copies if fault.at >= since]
        for tier, at in one.taken.items():
            self.taken[tier] = max(self.taken.get(tier, 0.0), at)

    def facts(self, until: float) -> ReportFacts:
        """The collected facts."""
        return ReportFacts(
            self.since,
            until,
            tuple(self.incidents),
            tuple(self.ends),
            tuple(self.restarts),
            tuple(self.damages),
            tuple(_tier_faults(self)),
            tuple(self.verdicts),
            tuple(self.nodes),
            tuple(self.use),
            tuple(self.unreadable),
        )


class ReportReader:
    """Reads reports from one durable tier. Thread-safe."""

    def __init__(self, durable: Path) -> None:
        self._durable = durable
        self._over: dict[str, tuple[object, _FactsCollector]] = {}
        """For trainings that are over: the version of their records, and the facts read from it."""

    def read(self, since: float, until: float | None = None) -> ReportFacts:
        """What happened since `since` (seconds since the epoch), and everything that waits now.

        Raises OSError if the trainings cannot be listed.
        """
        now = time.time() if until is None else until
        facts_read = _FactsCollector(since)
        _models(self._durable, facts_read)
        stores = {store.id: store for store in Trainings(self._durable / "trainings").stores()}
        for id, store in stores.items():
            facts_read.visit(
                f"training {id}",
                lambda store=store: facts_read.add(self._of(store, facts_read.champions)),  # type: ignore[misc]
            )
        for id in [id for id in self._over if id not in stores]:
            self._over.pop(id, None)
        _nodes_and_tiers(self._durable, facts_read)
        return facts_read.facts(now)

    def _of(self, store: TrainingStore, champions: frozenset[str]) -> _FactsCollector:
        version = (champions, _version(store.folder))
        stored = self._over.get(store.id)
        if stored is not None and stored[0] == version:
            return stored[1]
        facts_read, is_over = _training(store, champions)
        if is_over:
            self._over[store.id] = (version, facts_read)
        else:
            self._over.pop(store.id, None)
        return facts_read


def _version(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of a training's folder and ledger. They change with any record of a training."""
    entries = [entry for path in (folder, folder / files.LEDGER) if path.is_dir() for entry in os.scandir(path)]
    stats = {entry.path: entry.stat() for entry in entries}
    return tuple(sorted((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()))


def read_facts(
    durable: Path, since: float, until: float | None = None, only: TrainingStore | None = None
) -> ReportFacts:
    """As `ReportReader.read`, for a single read; with `only`, for that training alone."""
    if only is None:
        return ReportReader(durable).read(since, until)
    facts_read = _FactsCollector(since)
    facts_read.visit(f"training {only.id}", lambda: facts_read.add(_training(only, facts_read.champions)[0]))
    return facts_read.facts(time.time() if until is None else until)


def read_platform_facts(durable: Path, since: float, until: float) -> ReportFacts:
    """The facts without trainings: gates, nodes and tiers. Raises OSError."""
    facts_read = _FactsCollector(since)
    _models(durable, facts_read)
    _nodes_and_tiers(durable, facts_read)
    return facts_read.facts(until)


def _nodes_and_tiers(durable: Path, facts_read: _FactsCollector) -> None:
    register = NodeRegister(durable)
    for node in listing.folders_if_there(durable / FOLDER):
        facts_read.visit(f"node {node}", lambda node=node: _node(register, node, facts_read))  # type: ignore[misc]
    for name in listing.names_if_there(durable / STORAGE, JOURNAL):
        facts_read.visit(f"tier {name}", lambda name=name: _use(durable, name, facts_read))  # type: ignore[misc]
    facts_read.visit(f"tier {DURABLE}", lambda: _use_now(durable, facts_read))


def _training(store: TrainingStore, champions: frozenset[str]) -> tuple[_FactsCollector, bool]:
    """All facts of one training, and whether it is over."""
    facts_read = _FactsCollector(0.0, champions)
    facts = store.read()
    facts_read.incidents += incident_reports.of(store, facts)
    end = training_end(facts)
    if end is not None:
        facts_read.ends.append(end)
    for number in range(1, facts.incarnation):
        ended = facts.exit_of(number)
        if ended is not None and ended.outcome == "stopped":
            facts_read.restarts.append(RestartAsked(store.id, number, ended.reason, ended.at, ended.kind))
    _copies(facts, facts_read)
    return facts_read, facts.over


def training_end(facts: TrainingFacts) -> TrainingEnd | None:
    """How a training ended for good; None if it may go on."""
    ended = facts.ended
    if ended is None or not facts.over:
        return None
    reason = ended.reason
    at = ended.at
    if facts.desired is not None and not facts.should_run:
        at = max(ended.at, facts.desired.at)
        if ended.outcome == "failed":
            reason = facts.desired.why
    return TrainingEnd(
        facts.id,
        facts.specification.recipe,
        ended.outcome,
        incident_reports.is_stopped_by_person(facts),
        reason,
        ended.kind,
        facts.newest_step,
        at,
    )


def _copies(facts: TrainingFacts, facts_read: _FactsCollector) -> None:
    """Collect the faults and damages of a training's checkpoints."""
    damaged: dict[str, list[replicas.CopyFault]] = {}
    for fault in replicas.noted_faults(facts.folder):
        if fault.kind == replicas.DAMAGED:
            damaged.setdefault(fault.commit, []).append(fault)
        else:
            facts_read.copies.append((fault, facts.id))
    for commit in facts.commits:
        for tier in facts.holders[commit.name]:
            facts_read.taken[tier] = max(facts_read.taken.get(tier, 0.0), commit.at)
    aside = {removal.commit: removal for removal in removals.set_aside(facts.folder)}
    for name in sorted(damaged.keys() | aside.keys()):
        facts_read.damages.append(_damage(facts, name, damaged.get(name, []), aside.get(name), facts_read.champions))


def _damage(
    facts: TrainingFacts,
    name: str,
    copies: list[replicas.CopyFault],
    aside: removals.Removal | None,
    champions: Iterable[str],
) -> CheckpointDamage:
    whole_steps = [commit.step for commit in facts.commits]
    commit = commits.read(facts.folder, name)
    times = [fault.at for fault in copies]
    reasons = [fault.reason for fault in copies]
    if aside:
        times.append(aside.at)
        reasons.append(aside.reason)
    return CheckpointDamage(
        facts.id,
        facts.specification.recipe,
        int(name.partition(".")[0]),
        tuple(dict.fromkeys(fault.tier for fault in copies)),
        next(iter(reasons), ""),
        max(times),
        () if aside else facts.holders.get(name, ()),
        max(whole_steps, default=None),
        not isinstance(commit, str) and commit.manifest in champions,
    )


def _tier_faults(facts_read: _FactsCollector) -> Iterator[TierFault]:
    """The last fault of each kind for each tier, with all affected trainings."""
    tiers: dict[tuple[str, str], list[tuple[replicas.CopyFault, str]]] = {}
    for fault, training in facts_read.copies:
        tiers.setdefault((fault.tier, fault.kind), []).append((fault, training))
    for (tier, kind), faults in sorted(tiers.items()):
        last = max((fault for fault, _ in faults), key=lambda fault_of_tier: fault_of_tier.at)
        trainings = tuple(sorted({training for _, training in faults}))
        over = facts_read.taken.get(tier, 0.0) > last.at
        yield TierFault(tier, trainings, last.reason, kind == replicas.AWAY, last.at, over)


def _models(durable: Path, facts_read: _FactsCollector) -> None:
    """Collect the verdicts of the gates. Their reader imports Dagster, which takes seconds, so only if models exist."""
    names = listing.folders_if_there(durable / MODELS)
    if not names:
        return
    from slipway.resources.daily_report import gate_verdicts

    def read(name: str) -> None:
        verdicts_of_model, champion = gate_verdicts.of_model(durable, name, facts_read.since)
        facts_read.verdicts += verdicts_of_model
        if champion:
            facts_read.champions |= {champion}

    for name in names:
        facts_read.visit(f"model {name}", lambda name=name: read(name))  # type: ignore[misc]


def _node(register: NodeRegister, node: str, facts_read: _FactsCollector) -> None:
    record = register.of(node)
    if record.number and (record.standing.out_of_service or record.at >= facts_read.since):
        facts_read.nodes.append(record)


def _use(durable: Path, name: str, facts_read: _FactsCollector) -> None:
    samples = [Sample(**event) for event in journal.read(durable / STORAGE / f"{name}{JOURNAL}").events]
    if not samples:
        return
    prediction = forecast.outlook(samples, 0)
    facts_read.use.append(
        TierUse(name, prediction.used, prediction.capacity, prediction.seconds_until_full, samples[-1].at)
    )


def _use_now(durable: Path, facts_read: _FactsCollector) -> None:
    """Measure the durable tier now, since it may fill up between the hourly samples."""
    if not durable.is_dir():
        return  # the tier is still empty
    now = use_now(durable)
    sampled = [use for use in facts_read.use if use.name == DURABLE]
    if sampled or now.is_nearly_full:
        soon = sampled[0].seconds_until_full if sampled else None
        facts_read.use = [
            *(use for use in facts_read.use if use.name != DURABLE),
            replace(now, seconds_until_full=soon),
        ]


def use_now(durable: Path) -> TierUse:
    """The current use of the durable tier's file system, without a forecast. Raises OSError."""
    usage = shutil.disk_usage(durable)
    return TierUse(DURABLE, usage.total - usage.free, usage.total, None, time.time())
