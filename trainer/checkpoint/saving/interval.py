"""The interval between saves: on each tier the optimum, between a ceiling and a floor that bounds the cost of saves.

The optimum balances the cost of a save, C seconds of the steps' time, against the work that a failure loses, with M the
mean seconds between the failures from which the tier protects. Young (CACM 17(9), 1974) gives sqrt(2 C M); Daly (Future
Generation Computer Systems 22(3), 2006, equation 37) refines it for a C that is not small beside M. Both are measured,
each from a prior.

**C** (`SaveCost`) is the stall, in which a rank's tensors are copied, plus the delay of the steps during the write. A
writer works beside the steps: it takes memory bandwidth, processors and the disk, and a rank that waits for any of them
holds up all others. Both show in the time of rank 0's steps, because every step waits for the slowest rank. Before the
first save, the cost is estimated from the bytes.

**M** (`Failures`) comes from the failures of this training so far, and from a prior. Failures are a Poisson process of
unknown rate, whose prior is a gamma distribution: after n failures in T seconds, the mean of the rate is
(a + n) / (b + T) (Gelman et al., Bayesian Data Analysis, 3rd edition, section 2.6). The prior mean a / b is the rate of
one rank times the number of ranks; the default is the rate of Llama 3 (`storage.failures_per_rank_day`). The prior
weighs as much as half a failure, and at most as much as a week of observation: one failure minutes after the start is
weak evidence, ten in an hour are strong. Failures of the configuration, the program or the data do not count: a
checkpoint does not help against them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from slipway.trainer.base.units import DAY
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME, TIERS
from slipway.trainer.config.operation import Storage
from slipway.trainer.record import causes
from slipway.trainer.record.claims import Claim, Token
from slipway.trainer.record.incarnation_exit import Exit
from slipway.trainer.record.incidents import IncidentRecord

PRIOR_BYTES_PER_SECOND = 1e9
"""The least rate of copies from a GPU, and of writes, on a node that is fit to train."""
BESIDE = 0.1
"""A save costs at least this share of the writer's time, even if the steps do not show it: their times vary."""
SMOOTHING = 0.1
"""The weight of a new step in the mean of the steps without a save."""
PRIOR_FAILURES = 0.5
PRIOR_SECONDS = 7 * DAY
"""The prior weighs at most as much as this time of observation."""


def optimal_seconds(blocked: float, between_failures: float) -> float:
    """Daly's optimal seconds of work between two saves, each of which blocks the steps for `blocked` seconds.

    `between_failures` are the mean seconds between failures of the whole job, above 0. They are also the result if a
    save blocks for at least twice as long.
    """
    share = blocked / (2 * between_failures)
    if share >= 1:
        return between_failures
    return math.sqrt(2 * blocked * between_failures) * (1 + math.sqrt(share) / 3 + share / 9) - blocked


def tier_seconds(storage: Storage, tier: str, cost: float, saving: float, between: float) -> float:
    """Seconds between two saves on a tier: the optimum, at most the tier's `minutes`. 0 means: not by time.

    They are at least the duration of a save, `saving`. They are also long enough that saves, each of which costs the
    steps `cost` seconds, take at most the share `storage.cost_share` of the time. `between` are the mean seconds
    between the failures from which the tier protects.
    """
    longest = ceilings(storage)[tier]
    shortest = max(saving, cost / storage.cost_share)
    if not longest:
        return 0.0
    if not cost:  # it is not known yet
        return max(shortest, longest)
    return max(shortest, min(longest, optimal_seconds(cost, between)))


def ceilings(storage: Storage) -> dict[str, float]:
    """The longest seconds between two saves on each tier; 0 means: not by time."""
    rules = {NVME: storage.nvme, DURABLE: storage.durable, BACKUP: storage.backup}
    return {tier: 60 * rule.minutes for tier, rule in rules.items()}


def due_tiers(
    now: float, step: int, every: int, intervals: Mapping[str, float], last: Mapping[str, float]
) -> tuple[str, ...]:
    """The tiers for a checkpoint of `step`, saved at `now`, the fastest first.

    `intervals` are the seconds between saves on each available tier; 0 means: not by time. `last` are the times of the
    newest save on each tier, or of the start of the training. The durable tier also gets every `every`-th step.
    """
    due = {tier for tier, interval in intervals.items() if interval and now - last[tier] >= interval}
    if step % every == 0:
        due.add(DURABLE)
    return tuple(tier for tier in TIERS if tier in due)


class SaveCost:
    """The measured cost of a save; used by rank 0."""

    def __init__(self) -> None:
        self._prior = 0.0
        self._measured: float | None = None
        """The cost of the last saves, smoothed; None before the first."""
        self._quiet: float | None = None
        """Seconds of a step without a save, smoothed; None before the first."""
        self._slower = 0.0
        """The delay of the steps during the present save."""

    @property
    def seconds(self) -> float:
        """The expected cost of the next save."""
        return self._prior if self._measured is None else self._measured

    def expect(self, size: int) -> None:
        """Estimate the cost of a save in which a rank's part has `size` bytes."""
        self._prior = size / PRIOR_BYTES_PER_SECOND

    def add_step(self, seconds: float, saving: bool) -> None:
        """Add a step of `seconds`; `saving`: whether a checkpoint was being written."""
        if self._quiet is None:
            if not saving:
                self._quiet = seconds
        elif saving:
            self._slower += seconds - self._quiet
        else:
            self._quiet += SMOOTHING * (seconds - self._quiet)

    def add_save(self, blocked: float, seconds: float) -> None:
        """Add a save that blocked the steps for `blocked` seconds and took `seconds` in all."""
        cost = blocked + max(self._slower, BESIDE * max(0.0, seconds - blocked))
        self._measured = cost if self._measured is None else (self._measured + cost) / 2
        self._slower = 0.0


@dataclass(frozen=True)
class Failures:
    """The number of failures of machines under a training, and the seconds of its runs in all."""

    count: int
    seconds: float
    node_losses: int = 0
    """The number of failures that lost a node with its NVMe."""

    def mean_seconds(self, ranks: int, per_rank_day: float, node_losses: bool = False) -> float:
        """The expected seconds between two failures on `ranks` ranks; with `node_losses`, between losses of a node."""
        prior = ranks * per_rank_day / DAY
        weight = min(PRIOR_FAILURES / prior, PRIOR_SECONDS)
        count = self.node_losses if node_losses else self.count
        return (weight + self.seconds) / (prior * weight + count)


def failures(
    claims: Sequence[Claim], exits: Mapping[int, Exit], incidents: Iterable[IncidentRecord], now: float
) -> Failures:
    """The failures of machines, from a training's claims, in order, its exits by incarnation, and its incidents.

    Only failures that are on record count: an incarnation that was superseded without an exit does not.
    """
    seconds = 0.0
    lost: dict[Token, bool] = {}
    newest: dict[int, Token] = {}
    for claim, after in zip_longest(claims, claims[1:]):
        newest[claim.token.incarnation] = claim.token
        same = after is not None and after.token.incarnation == claim.token.incarnation
        ended = None if same else exits.get(claim.token.incarnation)
        until = now
        if ended:
            until = ended.at
        elif after:
            until = after.at
        seconds += max(0.0, until - claim.at)
    for incident in incidents:
        if not incident.survived and causes.cause(incident.kind).fault == "machine":
            lost[Token.parse(incident.token)] = incident.kind == causes.DISRUPTED
    for number, ended in exits.items():
        if ended.outcome == "failed" and (ended.disrupted or causes.cause(ended.kind).fault == "machine"):
            token = newest.get(number, Token(number))
            lost[token] = lost.get(token, False) or ended.disrupted
    return Failures(len(lost), seconds, sum(lost.values()))
