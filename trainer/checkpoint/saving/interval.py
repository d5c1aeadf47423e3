"""The interval between saves: on each tier the optimum, below a ceiling, and no shorter than saves can be paid for.

The optimum balances the cost of a save, C seconds of the steps' time, against the work that a failure loses, with M the
mean seconds between the failures that the tier protects from. Young (CACM 17(9), 1974) gives sqrt(2 C M); Daly (Future
Generation Computer Systems 22(3), 2006, equation 37) refines it for a C that is not small beside M. Both are measured,
each from a prior.

**C** (`SaveCost`) is the stall and what the writing takes from the steps beside it. The stall is the time in which a
rank's tensors are copied. Then a writer works beside the steps: it takes memory bandwidth, processors and the disk, and
a rank that waits for any of them holds up all others. Both show in the time of rank 0's steps, as every step waits for
the slowest rank. Before the first save the cost follows from the bytes.

**M** (`Failures`) is what the training had to survive so far, beside what is known of others. Failures are a Poisson
process of unknown rate, whose prior is a gamma distribution: after n failures in T seconds, the mean of the rate is
(a + n) / (b + T) (Gelman et al., Bayesian Data Analysis, 3rd edition, section 2.6). The prior mean a / b is the rate of
one rank times the ranks; by default it is that of Llama 3 (`storage.failures_per_rank_day`). The prior weighs as much
as half a failure, and never more than a week of watching: one failure minutes after the start says little, and ten in
an hour say much. Failures of the configuration, the program or the data do not count: a checkpoint does not help
against them.
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
"""What copying out of a GPU and writing give at least on a node that is fit to train."""
BESIDE = 0.1
"""The share of the writer's time that a save costs at least, where slower steps do not show more: steps vary."""
SMOOTHING = 0.1
"""The weight of a new step in the mean of the steps without a save."""
PRIOR_FAILURES = 0.5
PRIOR_SECONDS = 7 * DAY
"""The prior weighs no more than so many seconds without a failure."""


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


class SaveCost:
    """Measures what a save costs; rank 0 does."""

    def __init__(self) -> None:
        self._prior = 0.0
        self._measured: float | None = None
        self._quiet: float | None = None
        self._slower = 0.0

    @property
    def seconds(self) -> float:
        """What the next save is expected to cost."""
        return self._prior if self._measured is None else self._measured

    def expect(self, size: int) -> None:
        """A rank's part of a checkpoint has `size` bytes."""
        self._prior = size / PRIOR_BYTES_PER_SECOND

    def add_step(self, seconds: float, saving: bool) -> None:
        """A step took `seconds`; `saving`: while a checkpoint was being written."""
        if not saving:
            self._quiet = seconds if self._quiet is None else self._quiet + SMOOTHING * (seconds - self._quiet)
        elif self._quiet is not None:
            self._slower += seconds - self._quiet

    def add_save(self, blocked: float, seconds: float) -> None:
        """A save blocked the steps for `blocked` seconds and took `seconds` in all."""
        cost = blocked + max(self._slower, BESIDE * max(0.0, seconds - blocked))
        self._measured = cost if self._measured is None else (self._measured + cost) / 2
        self._slower = 0.0


@dataclass(frozen=True)
class Failures:
    """How often machines failed under a training, and the seconds that it ran in all."""

    count: int
    seconds: float
    node_losses: int = 0
    """Those of them that took a node with its NVMe."""

    def mean_seconds(self, ranks: int, per_rank_day: float, node_losses: bool = False) -> float:
        """The expected seconds between two failures on so many ranks; of those that lose a node, where asked."""
        prior = ranks * per_rank_day / DAY
        weight = min(PRIOR_FAILURES / prior, PRIOR_SECONDS)
        count = self.node_losses if node_losses else self.count
        return (weight + self.seconds) / (prior * weight + count)


def failures(
    claims: Sequence[Claim], exits: Mapping[int, Exit], incidents: Iterable[IncidentRecord], now: float
) -> Failures:
    """The failures of machines, from a training's claims, in order, its exits by incarnation, and its incidents.

    What is not on record as a failure of a machine is none: an incarnation that was superseded without an exit, too.
    """
    seconds = 0.0
    lost: dict[Token, bool] = {}
    newest: dict[int, Token] = {}
    for claim, after in zip_longest(claims, claims[1:]):
        newest[claim.token.incarnation] = claim.token
        same = after is not None and after.token.incarnation == claim.token.incarnation
        ended = None if same else exits.get(claim.token.incarnation)
        until = ended.at if ended else after.at if after else now
        seconds += max(0.0, until - claim.at)
    for incident in incidents:
        if not incident.survived and causes.cause(incident.kind).fault == "machine":
            lost[Token.parse(incident.token)] = incident.kind == causes.DISRUPTED
    for number, ended in exits.items():
        if ended.outcome == "failed" and (ended.disrupted or causes.cause(ended.kind).fault == "machine"):
            token = newest.get(number, Token(number))
            lost[token] = lost.get(token, False) or ended.disrupted
    return Failures(len(lost), seconds, sum(lost.values()))
