"""Spending: the rank-hours of all trainings and trials since a day, as lines, and sums of them by any criterion.

A training that ended before that day is not read. A training whose ledger has not grown is not read again, unless it is
running, since then it uses more without a new record.
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
    """The rank-hours of one training on one day in one bucket."""

    training: str
    subject: CostSubject
    spot: bool
    day: datetime.date
    bucket: str
    """A name from `slipway.trainer.record.accounting.buckets`."""
    rank_hours: float


@dataclass(frozen=True)
class InterruptionLine:
    """The rank-hours that one interruption of a training cost, on whatever days."""

    training: str
    subject: CostSubject
    spot: bool
    cause: str
    """The cause of the interruption, from `slipway.trainer.record.causes`."""
    rank_hours: float


LineT = TypeVar("LineT", SpentLine, InterruptionLine)


@dataclass(frozen=True)
class Spending:
    """The spending since a day."""

    since: datetime.date
    lines: tuple[SpentLine, ...] = ()
    interruptions: tuple[InterruptionLine, ...] = ()
    """The interruptions of the trainings that have lines."""
    unreadable: tuple[str, ...] = ()
    """The trainings that could not be read, a sentence each."""


@dataclass(frozen=True)
class SpentSum:
    """A sum of spending; with money if prices are set."""

    what: str
    on_demand: float
    """Rank-hours on on-demand nodes."""
    spot: float
    """Rank-hours on spot nodes."""
    money: float | None = None
    all_on_demand: float | None = None
    """The price if all nodes had been on-demand nodes."""
    all_on_spot: float | None = None
    """The price if all nodes had been spot nodes."""

    @property
    def rank_hours(self) -> float:
        return self.on_demand + self.spot


def sums(lines: Iterable[LineT], what: Callable[[LineT], str], prices: Prices | None) -> list[SpentSum]:
    """The sums of lines by the name that `what` gives them, the largest first; lines named "" are left out."""
    by_name: dict[str, list[LineT]] = {}
    for line in lines:
        name = what(line)
        if name:
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
    """The spending of a training when it was read."""

    size: tuple[int, int]
    """The number of its ledger's segments, and their bytes."""
    lines: tuple[SpentLine, ...] = ()
    interruptions: tuple[InterruptionLine, ...] = ()


@dataclass
class SpendingReader:
    """Reads the spending of a durable tier's trainings, with a cache."""

    durable: Path
    _known: dict[Path, _Known] = field(default_factory=dict)

    def since(self, day: datetime.date, now: float) -> Spending:
        """The spending since a day (UTC). Raises Unreadable and OSError if trainings cannot be listed."""
        begin = datetime.datetime.combine(day, datetime.time(), datetime.UTC).timestamp()
        lines = list[SpentLine]()
        interruptions = list[InterruptionLine]()
        unreadable = list[str]()
        for store in self._stores():
            try:
                known = self._of(store, begin, now)
            except (ValueError, OSError) as error:
                unreadable.append(f"{store.id}: {error}")
                continue
            own = [line for line in known.lines if line.day >= day] if known else []
            if known and own:
                lines += own
                interruptions += known.interruptions
        return Spending(day, tuple(lines), tuple(interruptions), tuple(unreadable))

    def _stores(self) -> Iterator[TrainingStore]:
        yield from Trainings(self.durable / "trainings").stores()
        for trials in trials_below(self.durable).values():
            yield from trials.stores()

    def _of(self, store: TrainingStore, begin: float, now: float) -> _Known | None:
        """The spending of one training; None if it ended before `begin` or never started."""
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
        InterruptionLine(store.id, subject, cost.spot, interruption.kind or "unknown", cost.lost_to(interruption))
        for interruption in account.interruptions
    )
    return _Known(size, tuple(lines), tuple(lost))
