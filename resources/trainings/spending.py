"""Spending: what all trainings and trials held from a day on, line by line, and sums of it by whatever one asks.

A training that ended before that day is not read. One whose ledger has not grown since the last reading is not read
again, unless it runs: then it uses more without a word.
"""

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from slipway.resources.trainings import accounts
from slipway.resources.trainings.accounts import CostSubject, Prices, cost_of, cost_subject
from slipway.resources.trainings.store import Trainings, TrainingStore, trials_below
from slipway.trainer.record import ledger


@dataclass(frozen=True)
class SpentLine:
    """Rank-hours that one training held on one day for one thing."""

    training: str
    subject: CostSubject
    spot: bool
    day: datetime.date
    bucket: str
    """Of `slipway.trainer.record.accounting.buckets`."""
    rank_hours: float


@dataclass(frozen=True)
class InterruptionLine:
    """Rank-hours that one interruption took from a training, on whatever day."""

    training: str
    subject: CostSubject
    spot: bool
    cause: str
    """What interrupted it: of `slipway.trainer.record.causes`."""
    rank_hours: float


LineT = TypeVar("LineT", SpentLine, InterruptionLine)


@dataclass(frozen=True)
class Spending:
    """What was spent from a day on."""

    since: datetime.date
    lines: tuple[SpentLine, ...] = ()
    interruptions: tuple[InterruptionLine, ...] = ()
    """Those of the trainings that have lines."""
    unreadable: tuple[str, ...] = ()
    """What could not be read, a sentence each."""


@dataclass(frozen=True)
class SpentSum:
    """What was spent on one thing; money where prices are set."""

    what: str
    on_demand: float
    """Rank-hours."""
    spot: float
    """Rank-hours."""
    money: float | None = None
    all_on_demand: float | None = None
    """What it would have been on nodes on demand alone."""
    all_on_spot: float | None = None

    @property
    def rank_hours(self) -> float:
        return self.on_demand + self.spot


def sums(lines: Iterable[LineT], what: Callable[[LineT], str], prices: Prices | None) -> list[SpentSum]:
    """The sum of each thing that `what` names, the largest first; lines of which it names nothing are left out."""
    by_name: dict[str, list[LineT]] = {}
    for line in lines:
        if name := what(line):
            by_name.setdefault(name, []).append(line)
    return sorted((_sum(name, own, prices) for name, own in by_name.items()), key=lambda spent: -spent.rank_hours)


def _sum(name: str, lines: Iterable[LineT], prices: Prices | None) -> SpentSum:
    hours = {False: 0.0, True: 0.0}
    money = [0.0, 0.0, 0.0]
    for line in lines:
        hours[line.spot] += line.rank_hours
        if prices is not None:
            price = prices.of(line.subject.team)
            own = price.spot if line.spot else price.on_demand
            for index, price_per_hour in enumerate((own, price.on_demand, price.spot)):
                money[index] += line.rank_hours * price_per_hour
    return SpentSum(name, hours[False], hours[True], *(money if prices is not None else ()))


@dataclass
class _Known:
    """What a training had spent when it was read."""

    size: tuple[int, int]
    """How many segments its ledger had, and their bytes."""
    lines: tuple[SpentLine, ...] = ()
    interruptions: tuple[InterruptionLine, ...] = ()


@dataclass
class SpendingReader:
    """Reads what the trainings of a durable tier spent; keeps what it has read."""

    durable: Path
    _known: dict[Path, _Known] = field(default_factory=dict)

    def since(self, day: datetime.date, now: float) -> Spending:
        """What was spent from a day on, in UTC. Raises Unreadable and OSError when trainings cannot be listed."""
        begin = datetime.datetime.combine(day, datetime.time(), datetime.UTC).timestamp()
        lines, interruptions, unreadable = list[SpentLine](), list[InterruptionLine](), list[str]()
        for store in self._stores():
            try:
                known = self._of(store, begin, now)
            except (ValueError, OSError) as error:
                unreadable.append(f"{store.id}: {error}")
                continue
            own = [line for line in known.lines if line.day >= day] if known else []
            lines += own
            interruptions += known.interruptions if known and own else ()
        return Spending(day, tuple(lines), tuple(interruptions), tuple(unreadable))

    def _stores(self) -> Iterator[TrainingStore]:
        yield from Trainings(self.durable / "trainings").stores()
        for trials in trials_below(self.durable).values():
            yield from trials.stores()

    def _of(self, store: TrainingStore, begin: float, now: float) -> _Known | None:
        """What one training spent; None for one that ended before `begin`, or was never wanted."""
        stats = [path.stat() for path in ledger.segments(store.folder)]
        size = (len(stats), sum(stat.st_size for stat in stats))
        known = self._known.get(store.folder)
        runs = store.newest_claim() is not None and store.exit() is None
        if not runs and max((stat.st_mtime for stat in stats), default=0.0) < begin:
            return None
        if known is None or known.size != size or runs:
            known = self._known[store.folder] = _read(store, size, now)
        return known


def _read(store: TrainingStore, size: tuple[int, int], now: float) -> _Known:
    known = accounts.of_if_any(store.folder, now)
    if known is None:
        return _Known(size)
    account = known[0]
    cost = cost_of(store.folder, known[0])
    subject = cost_subject(store)
    subject = dataclasses.replace(subject, team=subject.team or cost.owner)
    lines = (
        SpentLine(store.id, subject, cost.spot, share.day, share.bucket, share.rank_hours) for share in cost.shares
    )
    lost = (
        InterruptionLine(store.id, subject, cost.spot, interruption.kind or "not known", cost.lost_to(interruption))
        for interruption in account.interruptions
    )
    return _Known(size, tuple(lines), tuple(lost))
