"""The interval between saves: on each tier the optimum, below a ceiling, and no shorter than saves can be paid for.

The optimum balances the cost of a save, C seconds of the steps' time, against the work that a failure loses, with M the
mean seconds between the failures that the tier protects from. Young (CACM 17(9), 1974) gives sqrt(2 C M); Daly (Future
Generation Computer Systems 22(3), 2006, equation 37) refines it for a C that is not small beside M. Both are measured,
each from a prior (`saving.cost`, `saving.failures`).
"""

import math
from collections.abc import Mapping

from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME, TIERS
from slipway.trainer.config.operation import Storage


def optimal_seconds(blocked: float, between_failures: float) -> float:
    """Daly's optimal seconds of work between two saves, each of which blocks the steps for `blocked` seconds.

    `between_failures` are the mean seconds between failures of the whole job, above 0. They are the result where a
    save blocks for twice as long or longer.
    """
    share = blocked / (2 * between_failures)
    if share >= 1:
        return between_failures
    return math.sqrt(2 * blocked * between_failures) * (1 + math.sqrt(share) / 3 + share / 9) - blocked


def tier_seconds(storage: Storage, tier: str, cost: float, saving: float, between: float) -> float:
    """Seconds between two saves on a tier: the optimum, at most the tier's `minutes`. 0 means: not by time.

    They are at least the duration of a save, `saving`, and so long that saves, each of which costs the steps `cost`
    seconds, take no larger share of the time than `storage.cost_share`. `between` are the mean seconds between the
    failures that the tier protects from.
    """
    longest, shortest = ceilings(storage)[tier], max(saving, cost / storage.cost_share)
    if not longest:
        return 0.0
    best = optimal_seconds(cost, between) if cost else longest  # before its cost is known
    return max(shortest, min(longest, best))


def ceilings(storage: Storage) -> dict[str, float]:
    """The longest seconds between two saves on each tier; 0 means: not by time."""
    rules = {NVME: storage.nvme, DURABLE: storage.durable, BACKUP: storage.backup}
    return {tier: 60 * rule.minutes for tier, rule in rules.items()}


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
