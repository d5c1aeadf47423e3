"""Quotas: how many rank-hours each owner may use in a day, week or month, and how many are used.

A quota only holds back starts: a training that has begun goes on, also after a failure, however much it uses. A
training that is held back starts by itself in the next period. The use comes from the accounts of the owner's trainings
and trials, including running ones; an account is computed again only if its ledger has grown.
The use of a start is not known in advance, so nothing is reserved: while some of a quota is left, any number of starts
may begin, and together they may exceed the quota.
"""

import datetime
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from slipway.resources.trainings import records
from slipway.resources.trainings.accounts import CostShare, cost_if_any
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.records import RunPolicy
from slipway.resources.trainings.store import Trainings, TrainingStore, trials_below
from slipway.trainer.record import files, ledger

DAY = "day"
WEEK = "week"
MONTH = "month"
LASTS_SECONDS = 30.0
"""How long the use is cached, so that a hundred waiting starts read it only once."""


@dataclass(frozen=True)
class Quota:
    """How much one owner may use."""

    rank_hours: float
    per: str
    """The calendar period, in UTC: day, week or month."""


NO_QUOTAS: Mapping[str, Quota] = MappingProxyType({})


@dataclass(frozen=True)
class QuotaStatus:
    """How much of a quota is used in the current period."""

    owner: str
    quota: Quota
    begins: datetime.date
    ends: datetime.date
    """The first day of the next period."""
    used: float
    """In rank-hours."""

    @property
    def remaining(self) -> float:
        """The remaining rank-hours; 0 if the quota is used up or exceeded."""
        return max(0.0, self.quota.rank_hours - self.used)

    @property
    def sentence(self) -> str:
        """What is used and what is left, for a person."""
        return (
            f"the quota of {self.owner}: {self.used:,.1f} of {self.quota.rank_hours:,.1f} rank-hours of this "
            f"{self.quota.per} are used, {self.remaining:,.1f} are left until {self.ends} 00:00 UTC"
        )


def period(day: datetime.date, per: str) -> tuple[datetime.date, datetime.date]:
    """The first day of the period that contains `day`, and the first day of the next period.

    >>> period(datetime.date(2026, 11, 24), "week")
    (datetime.date(2026, 11, 23), datetime.date(2026, 11, 30))
    """
    if per == WEEK:
        first = day - datetime.timedelta(days=day.weekday())
        return first, first + datetime.timedelta(days=7)
    if per == MONTH:
        first = day.replace(day=1)
        return first, (first + datetime.timedelta(days=31)).replace(day=1)
    assert per == DAY
    return day, day + datetime.timedelta(days=1)


def is_new_start(facts: TrainingFacts) -> bool:
    """Whether the next incarnation is the first since somebody started the training, and not a recovery."""
    if facts.running or facts.desired is None:
        return False
    return facts.claim is None or facts.desired.incarnation == facts.incarnation


@dataclass
class _Known:
    """The cached use of a platform's trainings."""

    read_at: float = float("-inf")
    """By this process's monotonic clock."""
    used: dict[tuple[str, datetime.date], float] = field(default_factory=dict)
    shares: dict[Path, tuple[tuple[int, int], tuple[CostShare, ...]]] = field(default_factory=dict)
    """By training folder: the number of its ledger's segments and their bytes, and the cost at that size."""


_known: dict[Path, _Known] = {}


class Quotas:
    """The quotas of one platform."""

    def __init__(self, durable: Path, quotas: Mapping[str, Quota] = NO_QUOTAS) -> None:
        """`quotas` has owners as keys. The use of other owners is not limited."""
        self._durable = durable
        self._quotas = quotas

    def holds_back(self, facts: TrainingFacts, now: float) -> str:
        """Why a training may not start at `now`, in seconds since the epoch; "" if it may.

        Raises Unreadable and OSError if the trainings cannot be listed.
        """
        if not self._quotas or not is_new_start(facts) or facts.run_policy.owner not in self._quotas:
            return ""
        status = self.standing(facts.run_policy.owner, now)
        return "" if status.remaining else status.sentence

    def used_up(self, owner: str, now: float) -> bool:
        """Whether the quota of an owner is used up at `now`. Raises as `holds_back`."""
        return owner in self._quotas and not self.standing(owner, now).remaining

    def standing(self, owner: str, now: float) -> QuotaStatus:
        """The status of an owner's quota. Raises as `holds_back`, and KeyError for an owner without a quota."""
        quota = self._quotas[owner]
        begins, ends = period(datetime.datetime.fromtimestamp(now, datetime.UTC).date(), quota.per)
        used = (hours for (whose, day), hours in self._used(now).items() if whose == owner and begins <= day < ends)
        return QuotaStatus(owner, quota, begins, ends, sum(used))

    def standings(self, now: float) -> list[QuotaStatus]:
        """The status of all quotas, by owner."""
        return [self.standing(owner, now) for owner in sorted(self._quotas)]

    def _used(self, now: float) -> dict[tuple[str, datetime.date], float]:
        """Rank-hours by owner and day."""
        known = _known.setdefault(self._durable, _Known())
        if time.monotonic() - known.read_at < LASTS_SECONDS:
            return known.used
        used: dict[tuple[str, datetime.date], float] = {}
        for store in self._stores():
            for whose, day, hours in self._of(store, known, now):
                used[whose, day] = used.get((whose, day), 0.0) + hours
        known.used = used
        known.read_at = time.monotonic()
        return used

    def _stores(self) -> Iterator[TrainingStore]:
        yield from Trainings(self._durable / "trainings").stores()
        for trials in trials_below(self._durable).values():
            yield from trials.stores()

    def _of(self, store: TrainingStore, known: _Known, now: float) -> Iterator[tuple[str, datetime.date, float]]:
        """The use of one training, as (owner, day, rank-hours); nothing if its records cannot be read."""
        try:
            whose = records.read(RunPolicy, store.folder / files.RUN_POLICY).owner
            if whose not in self._quotas:
                return
            sizes = [path.stat().st_size for path in ledger.segments(store.folder)]
            size = (len(sizes), sum(sizes))
            stored = known.shares.get(store.folder)
            runs = store.newest_claim() is not None and store.exit() is None
        except (ValueError, OSError):
            return
        if stored is None or stored[0] != size or runs:  # a running training uses more without a new record
            cost = cost_if_any(store.folder, now)
            stored = known.shares[store.folder] = size, cost.shares if cost else ()
        for share in stored[1]:
            yield whose, share.day, share.rank_hours
