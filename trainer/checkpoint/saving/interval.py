"""The interval between saves: a ceiling for each tier, and on the NVMe the optimum where it is shorter.

The optimum balances the cost of a save, C seconds of the steps' time, against the work that a failure loses, with M the
mean seconds between failures. Young (CACM 17(9), 1974) gives sqrt(2 C M); Daly (Future Generation Computer
Systems 22(3), 2006, equation 37) refines it for a C that is not small beside M. Both are measured, each from a prior:
one failure minutes after the start says little about M, and would ask for a save at every other step.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME, TIERS
from trainer.config.operation import Storage
from trainer.record.fence import Claim, Exit

PRIOR_SECONDS = 86_400.0
"""A training is expected to fail once in a day, until it is known better: this counts as one failure that was seen."""


@dataclass(frozen=True)
class Failures:
    """How many starts of a training failed, and the seconds that it ran in all."""

    count: int
    seconds: float

    @property
    def mean_seconds_between(self) -> float | None:
        """Mean seconds between failures, None before the first failure."""
        return self.seconds / self.count if self.count else None


def failures(claims: Sequence[Claim], exits: Mapping[int, Exit], now: float) -> Failures:
    """The failures of a training, from its claims, in order, and from its exits, by incarnation.

    A start that was replaced by the next one failed, unless its incarnation succeeded or was asked to stop.
    """
    count, seconds = 0, 0.0
    for claim, after in zip_longest(claims, claims[1:]):
        same = after is not None and after.token.incarnation == claim.token.incarnation
        ended = None if same else exits.get(claim.token.incarnation)
        until = ended.at if ended else after.at if after else now
        seconds += max(0.0, until - claim.at)
        count += ended.outcome == "failed" if ended else after is not None
    return Failures(count, seconds)


def optimal_seconds(blocked: float, between_failures: float) -> float:
    """Daly's optimal seconds of work between two saves, each of which blocks the steps for `blocked` seconds.

    `between_failures` are the mean seconds between failures of the whole job, above 0. They are the result where a
    save blocks for twice as long or longer.
    """
    share = blocked / (2 * between_failures)
    if share >= 1:
        return between_failures
    return math.sqrt(2 * blocked * between_failures) * (1 + math.sqrt(share) / 3 + share / 9) - blocked


def nvme_seconds(storage: Storage, cost: float, saving: float, measured: Failures) -> float:
    """Seconds between two saves on the NVMe: the optimum, at most `storage.nvme.minutes`. 0 means: not by time.

    They are at least the duration of a save, `saving`, and so long that saves, each of which costs the steps `cost`
    seconds, take no larger share of the time than `storage.cost_share`. Before the first failure they are the most.
    """
    longest, shortest = 60 * storage.nvme.minutes, max(saving, cost / storage.cost_share)
    if not longest:
        return 0.0
    if not measured.count:
        return max(longest, shortest)
    between = (measured.seconds + PRIOR_SECONDS) / (measured.count + 1)
    return max(shortest, min(longest, optimal_seconds(cost, between)))


def seconds_by_tier(storage: Storage, nvme: float) -> dict[str, float]:
    """Seconds between two saves on each tier; `nvme` are those of the NVMe (`nvme_seconds`)."""
    return {NVME: nvme, DURABLE: 60 * storage.durable.minutes, BACKUP: 60 * storage.backup.minutes}


def due_tiers(
    now: float, step: int, every: int, intervals: Mapping[str, float], last: Mapping[str, float]
) -> tuple[str, ...]:
    """The tiers that a checkpoint of `step`, saved at `now`, goes to, the fastest first.

    `intervals` are the seconds between saves on each tier that exists; 0 means: not by time. `last` are the times of
    the newest save on each tier, or of the start of the training. The durable tier also gets every `every`-th step.
    """
    elapsed = {tier for tier, interval in intervals.items() if interval and now - last[tier] >= interval}
    steps = {DURABLE} if step % every == 0 else set()
    return tuple(tier for tier in TIERS if tier in elapsed | steps)
