"""The rate at which machines fail under a training: what it had to survive so far, beside what is known of others.

Failures are a Poisson process of unknown rate, whose prior is a gamma distribution: after n failures in T seconds, the
mean of the rate is (a + n) / (b + T) (Gelman et al., Bayesian Data Analysis, 3rd edition, section 2.6). The prior mean
a / b is the rate of one rank times the ranks; by default it is that of Llama 3 (`storage.failures_per_rank_day`). The
prior weighs as much as half a failure, and never more than a week of watching: one failure minutes after the start says
little, and ten in an hour say much. Failures of the configuration, the program or the data do not count: a checkpoint
does not help against them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from slipway.trainer.record import causes
from slipway.trainer.record.claims import Claim
from slipway.trainer.record.exits import Exit
from slipway.trainer.record.incidents import IncidentRecord
from slipway.trainer.record.tokens import Token

DAY = 86_400.0
PRIOR_FAILURES = 0.5
PRIOR_SECONDS = 7 * DAY
"""The prior weighs no more than so many seconds without a failure."""


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
    for each in incidents:
        if not each.survived and causes.cause(each.kind).fault == "machine":
            lost[Token.parse(each.token)] = each.kind == causes.DISRUPTED
    for number, ended in exits.items():
        if ended.outcome == "failed" and (ended.disrupted or causes.cause(ended.kind).fault == "machine"):
            token = newest.get(number, Token(number))
            lost[token] = lost.get(token, False) or ended.disrupted
    return Failures(len(lost), seconds, sum(lost.values()))
