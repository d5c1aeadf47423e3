"""Quotas: how many rank-hours each owner may use in a day, a week or a month, and how many are used.

A quota holds back starts, and nothing else: a training that has begun since it was wanted goes on, also after a
failure, however much it uses. One that is held back waits, and begins by itself in the next period. What is used is
read from the accounts of the owner's trainings and trials, those that run now included; the account of one whose
ledger has not grown is not made anew.

What a start will use is not known before, so nothing is reserved: starts at once all pass while some of a quota is
left, and together they may use more than it has.
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

DAY, WEEK, MONTH = "day", "week", "month"
LASTS_SECONDS = 30.0
"""What is used is read again after so long: a hundred starts that wait ask once."""


@dataclass(frozen=True)
class Quota:
    """How much one owner may use."""

    rank_hours: float
    per: str
    """A period of the calendar, in UTC: day, week or month."""


NO_QUOTAS: Mapping[str, Quota] = MappingProxyType({})


@dataclass(frozen=True)
class QuotaStatus:
    """How much of a quota is used in the period of now."""

    owner: str
    quota: Quota
    begins: datetime.date
    ends: datetime.date
    """The first day of the next period."""
    used: float
    """Rank-hours."""

    @property
    def remaining(self) -> float:
        """Rank-hours; 0 once as many are used as the quota has, or more."""
        return max(0.0, self.quota.rank_hours - self.used)

    @property
    def sentence(self) -> str:
        """What is used and left, and until when, for a person."""
        return (
            f"the quota of {self.owner}: {self.used:,.1f} of {self.quota.rank_hours:,.1f} rank-hours of this "
            f"{self.quota.per} are used, {self.remaining:,.1f} are left until {self.ends} 00:00 UTC"
        )


def period(day: datetime.date, per: str) -> tuple[datetime.date, datetime.date]:
    """The first day of the period that a day is in, and that of the next one.

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
    """Whether the next incarnation is the first since the training was wanted: no recovery of one that has begun."""
    if facts.running or facts.desired is None:
        return False
    return facts.claim is None or facts.desired.incarnation == facts.incarnation


@dataclass
class _Known:
    """What the trainings of a platform used, as far as it was read."""

    read_at: float = float("-inf")
    """By this process's own clock."""
    used: dict[tuple[str, datetime.date], float] = field(default_factory=dict)
    shares: dict[Path, tuple[tuple[int, int], tuple[CostShare, ...]]] = field(default_factory=dict)
    """By folder, how many segments its ledger had and their bytes, and what it cost then."""


_known: dict[Path, _Known] = {}


class Quotas:
    """The quotas of one platform."""

    def __init__(self, durable: Path, quotas: Mapping[str, Quota] = NO_QUOTAS) -> None:
        """`quotas` are by owner; whoever has none may use what there is."""
        self._durable = durable
        self._quotas = quotas

    def holds_back(self, facts: TrainingFacts, now: float) -> str:
        """Why a training may not begin at `now`, in seconds since the epoch; empty where it may.

        Raises Unreadable and OSError when the trainings cannot be listed.
        """
        owner = facts.run_policy.owner if self._quotas and is_new_start(facts) else ""
        standing = self.standing(owner, now) if owner in self._quotas else None
        return standing.sentence if standing and not standing.remaining else ""

    def used_up(self, owner: str, now: float) -> bool:
        """Whether an owner may begin nothing at `now`. Raises as `holds_back`."""
        return owner in self._quotas and not self.standing(owner, now).remaining

    def standing(self, owner: str, now: float) -> QuotaStatus:
        """How much of the owner's quota is used. Raises as `holds_back`, and KeyError for an owner without one."""
        quota = self._quotas[owner]
        begins, ends = period(datetime.datetime.fromtimestamp(now, datetime.UTC).date(), quota.per)
        used = (hours for (whose, day), hours in self._used(now).items() if whose == owner and begins <= day < ends)
        return QuotaStatus(owner, quota, begins, ends, sum(used))

    def standings(self, now: float) -> list[QuotaStatus]:
        """The same for all owners with a quota, by name."""
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
        known.used, known.read_at = used, time.monotonic()
        return used

    def _stores(self) -> Iterator[TrainingStore]:
        yield from Trainings(self._durable / "trainings").stores()
        for trials in trials_below(self._durable).values():
            yield from trials.stores()

    def _of(self, store: TrainingStore, known: _Known, now: float) -> Iterator[tuple[str, datetime.date, float]]:
        """What one training used; nothing where its records cannot be read, as its account says nothing either."""
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
        if stored is None or stored[0] != size or runs:  # what runs uses more without a word
            cost = cost_if_any(store.folder, now)
            stored = known.shares[store.folder] = size, cost.shares if cost else ()
        for share in stored[1]:
            yield whose, share.day, share.rank_hours
