"""Reading a night: the facts of it from the records on the durable tier. Reads, and changes nothing.

Each subject alone: one whose records cannot be read is a fact of its own, and the others are read. Trials are not
looked at: their sweep decides about them.

Whoever reads one night after the other keeps a `NightReader`: a training that is over is read once, and again only when
something in its folder has changed.
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
    NightFacts,
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

MODELS, STORAGE, JOURNAL = "models", "storage", ".journal"


@dataclass
class _Night:
    """What has been read so far."""

    since: float
    champions: frozenset[str] = frozenset()
    incidents: list[IncidentReport] = field(default_factory=list)
    ends: list[TrainingEnd] = field(default_factory=list)
    restarts: list[RestartAsked] = field(default_factory=list)
    damages: list[CheckpointDamage] = field(default_factory=list)
    copies: list[tuple[replicas.CopyFault, str]] = field(default_factory=list)
    """What a tier did not give or take, and the training."""
    taken: dict[str, float] = field(default_factory=dict)
    """By tier, when the newest commit that it holds was made."""
    verdicts: list[GateVerdict] = field(default_factory=list)
    nodes: list[NodeRecord] = field(default_factory=list)
    use: list[TierUse] = field(default_factory=list)
    unreadable: list[UnreadableSubject] = field(default_factory=list)

    def visit(self, name: str, read: Callable[[], None]) -> None:
        """Read one subject; what is wrong with it is kept, and keeps nothing else from being read."""
        try:
            read()
        except (ValueError, OSError, Unavailable) as error:
            self.unreadable.append(UnreadableSubject(name, str(error)))

    def add(self, one: "_Night") -> None:
        """Take over what has been read of one training, as far as it belongs to this night."""
        since = self.since
        self.incidents += [each for each in one.incidents if each.at >= since or each.todo]
        self.ends += [
            each for each in one.ends if each.at >= since or (each.outcome == "failed" and not each.by_person)
        ]
        self.restarts += [each for each in one.restarts if each.at >= since]
        self.damages += [each for each in one.damages if each.at >= since or (each.is_champion and not each.whole_on)]
        self.copies += [(fault, training) for fault, training in one.copies if fault.at >= since]
        for tier, at in one.taken.items():
            self.taken[tier] = max(self.taken.get(tier, 0.0), at)

    def facts(self, until: float) -> NightFacts:
        """What has been read."""
        return NightFacts(
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


class NightReader:
    """Reads nights of one durable tier; any thread may ask."""

    def __init__(self, durable: Path) -> None:
        self._durable = durable
        self._over: dict[str, tuple[object, _Night]] = {}
        """Of trainings that are over: what their records were when they were read, and what was read."""

    def night(self, since: float, until: float | None = None) -> NightFacts:
        """All that happened since a moment (seconds since the epoch), and what waits now, whenever it began.

        Raises OSError where the trainings cannot be listed.
        """
        now, found = time.time() if until is None else until, _Night(since)
        _models(self._durable, found)
        stores = {store.id: store for store in Trainings(self._durable / "trainings").stores()}
        for id, store in stores.items():
            found.visit(f"training {id}", lambda store=store: found.add(self._of(store, found.champions)))  # type: ignore[misc]
        for id in [id for id in self._over if id not in stores]:
            self._over.pop(id, None)
        _nodes_and_tiers(self._durable, found)
        return found.facts(now)

    def _of(self, store: TrainingStore, champions: frozenset[str]) -> _Night:
        version = (champions, _version(store.folder))
        held = self._over.get(store.id)
        if held is not None and held[0] == version:
            return held[1]
        found, is_over = _training(store, champions)
        if is_over:
            self._over[store.id] = (version, found)
        else:
            self._over.pop(store.id, None)
        return found


def _version(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """What changes with any record of a training that is over: names, sizes and times of its folder and its ledger."""
    entries = [each for path in (folder, folder / files.LEDGER) if path.is_dir() for each in os.scandir(path)]
    return tuple(sorted((each.path, (seen := each.stat()).st_size, seen.st_mtime_ns) for each in entries))


def night(durable: Path, since: float, until: float | None = None, only: TrainingStore | None = None) -> NightFacts:
    """As `NightReader.night`, read once; with `only`, of that training alone."""
    if only is None:
        return NightReader(durable).night(since, until)
    found = _Night(since)
    found.visit(f"training {only.id}", lambda: found.add(_training(only, found.champions)[0]))
    return found.facts(time.time() if until is None else until)


def platform_night(durable: Path, since: float, until: float) -> NightFacts:
    """The same without the trainings: gates, nodes and tiers. Raises OSError."""
    found = _Night(since)
    _models(durable, found)
    _nodes_and_tiers(durable, found)
    return found.facts(until)


def _nodes_and_tiers(durable: Path, found: _Night) -> None:
    register = NodeRegister(durable)
    for node in listing.folders_if_there(durable / FOLDER):
        found.visit(f"node {node}", lambda node=node: _node(register, node, found))  # type: ignore[misc]
    for name in listing.names_if_there(durable / STORAGE, JOURNAL):
        found.visit(f"tier {name}", lambda name=name: _use(durable, name, found))  # type: ignore[misc]
    found.visit(f"tier {DURABLE}", lambda: _use_now(durable, found))


def _training(store: TrainingStore, champions: frozenset[str]) -> tuple[_Night, bool]:
    """All that ever happened to one training, and whether it is over."""
    found, facts = _Night(0.0, champions), store.read()
    found.incidents += incident_reports.of(store, facts)
    end = training_end(facts)
    found.ends += [end] if end is not None else []
    for number in range(1, facts.incarnation):
        ended = facts.exit_of(number)
        if ended is not None and ended.outcome == "stopped":
            found.restarts.append(RestartAsked(store.id, number, ended.reason, ended.at, ended.kind))
    _copies(facts, found)
    return found, facts.over


def training_end(facts: TrainingFacts) -> TrainingEnd | None:
    """How a training ended for good; None while it has not."""
    ended = facts.ended
    if ended is None or not facts.over:
        return None
    wish, recipe = facts.desired, facts.specification.recipe
    given_up = wish.why if wish is not None and ended.outcome == "failed" and not facts.wanted else ended.reason
    at = max(ended.at, wish.at) if wish is not None and not facts.wanted else ended.at
    by_person = incident_reports.is_stopped_by_person(facts)
    return TrainingEnd(facts.id, recipe, ended.outcome, by_person, given_up, ended.kind, facts.newest_step, at)


def _copies(facts: TrainingFacts, found: _Night) -> None:
    """What happened to the checkpoints of a training on their tiers."""
    damaged: dict[str, list[replicas.CopyFault]] = {}
    for fault in replicas.noted_faults(facts.folder):
        if fault.kind == replicas.DAMAGED:
            damaged.setdefault(fault.commit, []).append(fault)
        else:
            found.copies.append((fault, facts.id))
    for commit in facts.commits:
        for tier in facts.holders[commit.name]:
            found.taken[tier] = max(found.taken.get(tier, 0.0), commit.at)
    aside = {each.commit: each for each in removals.set_aside(facts.folder)}
    for name in sorted(damaged.keys() | aside.keys()):
        found.damages.append(_damage(facts, name, damaged.get(name, []), aside.get(name), found.champions))


def _damage(
    facts: TrainingFacts,
    name: str,
    copies: list[replicas.CopyFault],
    aside: removals.Removal | None,
    champions: Iterable[str],
) -> CheckpointDamage:
    whole = [commit.step for commit in facts.commits]
    commit = commits.read(facts.folder, name)
    times = [each.at for each in copies] + ([aside.at] if aside else [])
    return CheckpointDamage(
        facts.id,
        facts.specification.recipe,
        int(name.partition(".")[0]),
        tuple(dict.fromkeys(each.tier for each in copies)),
        copies[0].reason if copies else aside.reason if aside else "",
        max(times),
        () if aside else facts.holders.get(name, ()),
        max(whole, default=None),
        not isinstance(commit, str) and commit.manifest in champions,
    )


def _tier_faults(found: _Night) -> Iterator[TierFault]:
    """The last fault of each kind of each tier, with all trainings that met one."""
    tiers: dict[tuple[str, str], list[tuple[replicas.CopyFault, str]]] = {}
    for fault, training in found.copies:
        tiers.setdefault((fault.tier, fault.kind), []).append((fault, training))
    for (tier, kind), met in sorted(tiers.items()):
        last = max((fault for fault, _ in met), key=lambda each: each.at)
        trainings = tuple(sorted({training for _, training in met}))
        over = found.taken.get(tier, 0.0) > last.at
        yield TierFault(tier, trainings, last.reason, kind == replicas.AWAY, last.at, over)


def _models(durable: Path, found: _Night) -> None:
    """The verdicts of the gates. What reads them imports Dagster, which takes seconds: only where there is a model."""
    names = listing.folders_if_there(durable / MODELS)
    if not names:
        return
    from slipway.resources.daily_report import gate_verdicts

    def read(name: str) -> None:
        verdicts_of_model, champion = gate_verdicts.of_model(durable, name, found.since)
        found.verdicts += verdicts_of_model
        found.champions |= {champion} if champion else set()

    for name in names:
        found.visit(f"model {name}", lambda name=name: read(name))  # type: ignore[misc]


def _node(register: NodeRegister, node: str, found: _Night) -> None:
    record = register.of(node)
    if record.number and (record.standing.out_of_service or record.at >= found.since):
        found.nodes.append(record)


def _use(durable: Path, name: str, found: _Night) -> None:
    samples = [Sample(**event) for event in journal.read(durable / STORAGE / f"{name}{JOURNAL}").events]
    if not samples:
        return
    seen = forecast.outlook(samples, 0)
    found.use.append(TierUse(name, seen.used, seen.capacity, seen.seconds_until_full, samples[-1].at))


def _use_now(durable: Path, found: _Night) -> None:
    """How full the durable tier is at this moment: between two samples, which are taken each hour, it may fill up."""
    if not durable.is_dir():
        return  # nothing has been written yet
    now = use_now(durable)
    sampled = [each for each in found.use if each.name == DURABLE]
    if sampled or now.is_nearly_full:
        soon = sampled[0].seconds_until_full if sampled else None
        found.use = [*(each for each in found.use if each.name != DURABLE), replace(now, seconds_until_full=soon)]


def use_now(durable: Path) -> TierUse:
    """How full the file system of the durable tier is; when it will be full is not known. Raises OSError."""
    usage = shutil.disk_usage(durable)
    return TierUse(DURABLE, usage.total - usage.free, usage.total, None, time.time())
