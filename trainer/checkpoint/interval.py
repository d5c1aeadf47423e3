"""How often a training saves: for each tier the longest sensible time, on the NVMe the optimal one where it is shorter.

The optimum weighs what a save costs, the seconds for which it blocks the steps, against the work that a failure loses.
Young (CACM 17(9), 1974) gives sqrt(2 C M); Daly (Future Generation Computer Systems 22(3), 2006, equation 37) refines
it for costs that are not small beside the mean time between failures. Both are measured, never configured.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from trainer.fence import Claim, Exit
from trainer.operation import Storage

NVME, DURABLE, BACKUP = "nvme", "durable", "backup"
TIERS = (NVME, DURABLE, BACKUP)
"""The fastest first: a save that is due on several is written to the first and copied from there."""


@dataclass(frozen=True)
class Failures:
    """How often a training was broken off, and the seconds that it ran in all."""

    count: int
    seconds: float

    @property
    def mean_seconds_between(self) -> float | None:
        """Mean time between failures, None before the first."""
        return self.seconds / self.count if self.count else None


def failures(claims: Sequence[Claim], exits: Mapping[int, Exit], now: float) -> Failures:
    """What the claims of a training, in their order, and the exits by incarnation say of its failures.

    A start that the next one replaced was broken off, unless its incarnation succeeded or was asked to stop.
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
    """Daly's optimal seconds of work between two saves that block for `blocked` seconds each.

    `between_failures`: mean seconds between failures of the whole job, above 0. Where a save blocks for twice that
    and more, the time between failures itself.
    """
    share = blocked / (2 * between_failures)
    if share >= 1:
        return between_failures
    return math.sqrt(2 * blocked * between_failures) * (1 + math.sqrt(share) / 3 + share / 9) - blocked


def nvme_seconds(ceiling_minutes: float, blocked: float | None, saving: float, measured: Failures) -> float:
    """Seconds between two saves on the NVMe: the optimal ones, at most the ceiling, at least what one save takes.

    `blocked` and `saving` are the measured seconds for which a save blocks the steps and which it takes in all;
    before the first save, and before the first failure, the ceiling holds. 0: never by the clock.
    """
    between, ceiling = measured.mean_seconds_between, 60 * ceiling_minutes
    if between is None or blocked is None or not ceiling:
        return ceiling
    return min(ceiling, max(saving, optimal_seconds(blocked, max(between, 1.0))))


def seconds(storage: Storage, nvme: float) -> dict[str, float]:
    """Seconds between two saves by tier, with `nvme_seconds` on the first."""
    return {NVME: nvme, DURABLE: 60 * storage.durable.minutes, BACKUP: 60 * storage.backup.minutes}


def due(
    now: float, step: int, every: int, intervals: Mapping[str, float], last: Mapping[str, float]
) -> tuple[str, ...]:
    """The tiers that a checkpoint of this moment goes to, the fastest first.

    `intervals` are seconds by tier, only of tiers that there are; 0 is never by the clock. `last` says when a tier
    was given its newest checkpoint, or when the training started. The durable tier is also given every `every` steps.
    """
    clock = {tier for tier, interval in intervals.items() if interval and now - last[tier] >= interval}
    steps = {DURABLE} if step % every == 0 else set()
    return tuple(tier for tier in TIERS if tier in clock | steps)
