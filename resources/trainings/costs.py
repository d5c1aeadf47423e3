"""Costs: the rank-hours of a training and their price, by what the time was spent on, from its account.

A rank holds its processor or GPU from the moment at which its job's processes begin, also while it repeats steps or
waits for a restart. It holds none while the training waits for nodes, is queued, or is stopped.
"""

import datetime
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.trainings import accounts, records
from slipway.resources.trainings.records import Terms
from slipway.trainer.record import fence, files
from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.accounting.account import Account, InterruptionCost

FREE = (buckets.WAITING, buckets.QUEUE, buckets.STOPPED)
HOUR = 3600.0


@dataclass(frozen=True)
class RankPrice:
    """What a rank costs for an hour: its GPU with its part of the node."""

    on_demand: float
    spot: float


@dataclass(frozen=True)
class Prices:
    """What a rank-hour costs everybody, and the teams that have prices of their own."""

    currency: str
    on_demand: float
    spot: float
    teams: Mapping[str, RankPrice] = field(default_factory=dict)
    """By owner."""

    def of(self, owner: str) -> RankPrice:
        """What the owner pays."""
        return self.teams.get(owner) or RankPrice(self.on_demand, self.spot)


@dataclass(frozen=True)
class CostShare:
    """Rank-hours of one day that were spent on one thing."""

    day: datetime.date
    """In UTC, when the stretch of time began."""
    bucket: str
    """Of `slipway.trainer.record.accounting.buckets`."""
    rank_hours: float


@dataclass(frozen=True)
class TrainingCost:
    """What a training held, and what that costs."""

    shares: tuple[CostShare, ...]
    spot: bool
    """Whether its pods may run on spot nodes."""
    ranks: Mapping[int, int] = field(default_factory=dict)
    """The ranks of each incarnation."""
    owner: str = ""
    """Who owns the training by its terms; empty where they do not say."""

    @property
    def rank_hours(self) -> float:
        return sum(each.rank_hours for each in self.shares)

    def lost_to(self, interruption: InterruptionCost) -> float:
        """The rank-hours that an interruption took."""
        held = sum(seconds for bucket, seconds in interruption.lost.items() if bucket not in FREE and seconds > 0)
        return held * self.ranks.get(int(interruption.token.split(".")[0]), 0) / HOUR

    def money(self, hours: float, price: RankPrice | None) -> float | None:
        """The price of so many rank-hours; None where no prices are set."""
        return None if price is None else hours * (price.spot if self.spot else price.on_demand)


def of(folder: Path, account: Account) -> TrainingCost:
    """The cost of the training in a folder, whose account is given. Raises ValueError and Unreadable."""
    terms = records.read(Terms, folder / files.TERMS)
    claims = fence.claims(folder)
    counts = [min(len(claim.nodes), terms.max_nodes) * terms.ranks_per_node for claim in claims]
    starts = list(zip((claim.at for claim in claims), counts, strict=True))
    ranks = dict(zip((claim.token.incarnation for claim in claims), counts, strict=True))
    return TrainingCost(tuple(shares(account, starts)), bool(terms.kubernetes.get("spot", False)), ranks, terms.owner)


def of_if_any(folder: Path, now: float | None = None) -> TrainingCost | None:
    """The cost; None for a training that was never wanted, and where it cannot be read."""
    found = accounts.of_if_any(folder, now)
    try:
        return of(folder, found[0]) if found else None
    except (ValueError, OSError):
        return None


def shares(account: Account, starts: Sequence[tuple[float, int]]) -> list[CostShare]:
    """Rank-hours by day and bucket; `starts` are when each incarnation was claimed, ascending, and its ranks."""
    times, sums = [at for at, _ in starts], dict[tuple[datetime.date, str], float]()
    for each in account.stretches:
        place = bisect_right(times, (each.begin + each.end) / 2)
        ranks = starts[place - 1][1] if place else 0
        day = datetime.datetime.fromtimestamp(each.begin, datetime.UTC).date()
        for bucket, seconds in each.seconds.items():
            if bucket not in FREE and seconds > 0 and ranks:
                sums[day, bucket] = sums.get((day, bucket), 0.0) + seconds * ranks / HOUR
    return [CostShare(day, bucket, hours) for (day, bucket), hours in sums.items()]
