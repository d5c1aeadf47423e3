"""Rollout: decides whether a new version gets all of the traffic or is rolled back. Pure functions.

Both versions answer the same kind of requests at the same time, so a busy machine slows both. The decision compares
the share of failed requests, the seconds to the first token and to each further token, and how well each version
predicts people's texts, in bits per byte on the same texts.

Only answers promote a version: one with too few answers waits, for any length of time, and one that had requests but
gave no answer is rolled back. The comparison is repeated after each request, so a difference counts only if it is
significant by a test that is valid over all repetitions. While it is only probable, the trial continues.
"""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slipway.serving.records import SwitchPolicy, SwitchVerdict

MAX_PAIRS = 1000
"""The number of newest measurements of each kind to keep."""
CERTAIN = 1.96
"""Standard errors: 95 % of a normal distribution."""
LEAST_PAIRS = 8
"""The fewest texts that both versions have predicted before their means are compared."""
SETTLED = 0.002
"""Smaller differences of latencies, in seconds, are ignored."""
SLOWER = 3.0
"""A version is slower if its rank sum differs by this many standard errors: 0.13 % at one look, because there are
many looks."""
LOOKS = {8: 3.636, 16: 3.036, 32: 2.818, 64: 2.724, 128: 2.680, 256: 2.659}
"""Student's t for 1/6 of 2.5 %, by the number of texts at which qualities are compared. Together the six looks roll
back one in 40 versions that are worse by exactly the margin (Bonferroni)."""


@dataclass(frozen=True)
class RolloutFinding:
    """The result of one comparison of the new version with the old one."""

    fault: str = ""
    """The reason to roll back; empty if there is none."""
    doubt: str = ""
    """A probable fault that is not significant yet; empty if there is none."""


NOTHING = RolloutFinding()


@dataclass
class Answered:
    """Measurements of one version's answers since the switch began."""

    since: float = 0.0
    """The time of its first request, by the monotonic clock; 0 before that."""
    begun: int = 0
    answered: int = 0
    failed: int = 0
    given_up: int = 0
    """Requests whose client disconnected before the first byte of an answer."""
    first_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_PAIRS))
    token_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_PAIRS))

    def begin(self, now: float) -> None:
        """Count a request that was passed to the version."""
        self.since = self.since or now
        self.begun += 1

    def add(self, first: float, per_token: float) -> None:
        """Count an answered request: the seconds to its first token, and per token."""
        self.answered += 1
        self.first_seconds.append(first)
        self.token_seconds.append(per_token)

    def fail(self) -> None:
        """Count a request that the version failed to answer."""
        self.failed += 1

    def put_back(self) -> None:
        """Uncount a request that no version could answer."""
        self.begun -= 1

    def give_up(self) -> None:
        """Count a request whose client did not wait for the answer."""
        self.given_up += 1

    @property
    def requests(self) -> int:
        """The number of requests that the version answered or failed to answer."""
        return self.answered + self.failed


def goes_to_new(number: int, share: float) -> bool:
    """Whether the request with this number, counted from 0, goes to the new version.

    Of the first n requests, exactly floor(n * share) do, without randomness.
    """
    return math.floor((number + 1) * share + 1e-9) > math.floor(number * share + 1e-9)


def decide(
    policy: SwitchPolicy, old: Answered, new: Answered, pairs: Sequence[float], seconds: float, scores: bool = True
) -> SwitchVerdict | None:
    """The verdict on a switch, `seconds` after the new version's first request; None while the trial continues.

    `pairs` are the differences, new minus old, in bits per byte of the texts that both versions have predicted;
    `scores` says whether the versions can score texts at all.
    """
    figures = _figures(old, new, pairs)
    late = seconds >= policy.patience_seconds
    findings = (_latency(policy, old, new), _quality(policy, pairs))
    faults = (_errors(policy, old, new), *(finding.fault for finding in findings), _silence(new, late))
    fault = next(filter(None, faults), "")
    if fault:
        return SwitchVerdict("back", fault, figures)
    if any(finding.doubt for finding in findings):
        return None
    enough = new.answered >= policy.least_requests and (old.requests >= policy.least_requests or late)
    if enough and (len(pairs) >= LEAST_PAIRS or not scores or late):
        return SwitchVerdict("all", f"no fault after {new.answered} answers", figures)
    return None


def waits_for(policy: SwitchPolicy, old: Answered, new: Answered, pairs: Sequence[float]) -> str:
    """The reason why a switch has no verdict yet. The text changes only if the reason does."""
    if not new.begun:
        return "on trial: no request has reached it yet"
    doubts = [finding.doubt for finding in (_latency(policy, old, new), _quality(policy, pairs)) if finding.doubt]
    if doubts:
        return f"on trial until more answers tell whether {' and '.join(doubts)}"
    return f"on trial until it has given {policy.least_requests} answers and is compared"


def _errors(policy: SwitchPolicy, old: Answered, new: Answered) -> str:
    """The fault that significantly more requests have no answer than with the old version.

    Clients also disconnect from good answers, so disconnects count only among many requests, and in comparison with the
    old version.
    """
    margin = policy.error_margin
    if _surely_more(new.failed, new.requests, old.failed, old.requests, margin):
        return f"{new.failed} of {new.requests} requests failed, {_before(old.failed, old.requests, margin)}"
    none = new.failed + new.given_up
    all = new.requests + new.given_up
    old_none = old.failed + old.given_up
    old_all = old.requests + old.given_up
    if all >= policy.least_requests and _surely_more(none, all, old_none, old_all, margin):
        finding = f"{none} of {all} requests failed or were given up before an answer came"
        return f"{finding}, {_before(old_none, old_all, margin)}"
    return ""


def _before(none: int, all: int, margin: float) -> str:
    return f"before it {none} of {all}: more than {margin:.1%} above"


def _surely_more(new: int, of_new: int, old: int, of_old: int, margin: float) -> bool:
    """Compare by the lower bound of Wilson's interval (JASA 22, 1927). A single request, whose failure may have any
    reason, is never significant."""
    before = old / of_old if of_old else 0.0
    return new > 1 and _wilson_low(new, of_new) > before + margin


def _silence(new: Answered, late: bool) -> str:
    if late and new.begun and not new.answered:
        return f"it has answered none of its {new.begun} requests"
    return ""


def _wilson_low(failed: int, requests: int) -> float:
    square = CERTAIN**2
    share = failed / requests
    middle = share + square / (2 * requests)
    half = CERTAIN * math.sqrt(share * (1 - share) / requests + square / (4 * requests**2))
    return (middle - half) / (1 + square / requests)


def _latency(policy: SwitchPolicy, old: Answered, new: Answered) -> RolloutFinding:
    doubt = ""
    for what, before, after in (
        ("the first token", old.first_seconds, new.first_seconds),
        ("each token", old.token_seconds, new.token_seconds),
    ):
        if min(len(before), len(after)) < policy.least_requests:
            continue
        was = statistics.median(before)
        now = statistics.median(after)
        if now <= was * policy.latency_ratio or now - was <= SETTLED:
            continue
        if _rank_sum(before, [seconds / policy.latency_ratio for seconds in after]) > SLOWER:
            fault = f"{what} takes {now:.3f} s, before it {was:.3f} s: more than {policy.latency_ratio:g} times"
            return RolloutFinding(fault=fault)
        doubt = doubt or f"{what} takes more than {policy.latency_ratio:g} times as long"
    return RolloutFinding(doubt=doubt)


def _rank_sum(some: Sequence[float], others: Sequence[float]) -> float:
    """The number of standard errors by which `others` are larger (Mann, Whitney, Annals of Mathematical Statistics 18,
    1947)."""
    ordered = sorted(some)
    count = len(some)
    number = len(others)
    below = sum(bisect_left(ordered, other) + bisect_right(ordered, other) for other in others) / 2
    return (below - count * number / 2) / math.sqrt(count * number * (count + number + 1) / 12)


def _quality(policy: SwitchPolicy, pairs: Sequence[float]) -> RolloutFinding:
    if len(pairs) < LEAST_PAIRS:
        return NOTHING
    texts = max(look for look in LOOKS if look <= len(pairs))
    mean, error = _mean(pairs[:texts])
    if mean - LOOKS[texts] * error > policy.quality_margin:
        fault = (
            f"it predicts what people write worse: by {mean:.3f} ± {LOOKS[texts] * error:.3f} bits per byte on {texts} "
            f"texts, and {policy.quality_margin:g} is allowed"
        )
        return RolloutFinding(fault=fault)
    seems = statistics.fmean(pairs) > policy.quality_margin
    if not seems:
        return RolloutFinding()
    return RolloutFinding(doubt="it predicts what people write worse")


def _mean(pairs: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error."""
    mean = statistics.fmean(pairs)
    if len(pairs) < 2:
        return mean, math.inf
    return mean, statistics.stdev(pairs) / math.sqrt(len(pairs))


def _figures(old: Answered, new: Answered, pairs: Sequence[float]) -> Mapping[str, float]:
    figures: dict[str, float] = {}
    for name, answered in (("old", old), ("new", new)):
        figures[f"{name}_requests"] = answered.requests
        figures[f"{name}_failed"] = answered.failed
        figures[f"{name}_given_up"] = answered.given_up
        for what, seconds in (("first", answered.first_seconds), ("token", answered.token_seconds)):
            if seconds:
                figures[f"{name}_{what}_seconds"] = round(statistics.median(seconds), 6)
    if len(pairs) > 1:
        mean, error = _mean(pairs)
        figures |= {"bits_per_byte_worse": round(mean, 6), "bits_per_byte_error": round(error, 6)}
        figures["compared_texts"] = len(pairs)
    return figures
