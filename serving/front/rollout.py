"""Rollout: whether a new version gets all of the traffic, or the one before does. Pure.

Both versions answer the same kind of requests at the same time, so that a busy machine slows both. Three things are
compared: the share of requests that failed, the seconds to the first token and to each further one, and how well each
version predicts what people write, in bits per byte, on the same texts.

Only answers promote: a version that has given too few waits, however long that takes, and one that was asked and has
given none goes back. All is looked at again after each request, so a difference counts when it is surely there by a
measure that holds over all these looks; while it only seems to be there, the trial goes on.
"""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slipway.serving.records import SwitchPolicy, SwitchVerdict

MAX_PAIRS = 1000
"""Of each kind of measurement, the newest so many."""
CERTAIN = 1.96
"""Standard errors: 95 % of a normal distribution."""
LEAST_PAIRS = 8
"""Texts that both versions have predicted, before their means are compared."""
SETTLED = 0.002
"""Seconds: a difference of latencies that is smaller says nothing."""
SLOWER = 3.0
"""Standard errors of the rank sum from which on a version is surely slower: 0.13 % at one look, and there are many."""
LOOKS = {8: 3.636, 16: 3.036, 32: 2.818, 64: 2.724, 128: 2.680, 256: 2.659}
"""By the number of texts at which qualities are compared, Student's t of 1/6 of 2.5 %: the six looks together send one
of 40 versions back that are worse by just the margin (Bonferroni)."""


@dataclass(frozen=True)
class RolloutFinding:
    """What one comparison says about the new version."""

    fault: str = ""
    """Why it goes back; empty where it does not."""
    doubt: str = ""
    """What seems to be wrong, and is not sure; empty where nothing does."""


NOTHING = RolloutFinding()


@dataclass
class Answered:
    """What was seen of one version's answers since the switch began."""

    since: float = 0.0
    """When its first request began, by the monotonic clock; 0 before that."""
    begun: int = 0
    answered: int = 0
    failed: int = 0
    given_up: int = 0
    """Requests whose client went away before the first byte of an answer."""
    first_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_PAIRS))
    token_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_PAIRS))

    def begin(self, now: float) -> None:
        """One request was given to it."""
        self.since = self.since or now
        self.begun += 1

    def add(self, first: float, per_token: float) -> None:
        """One request was answered: the seconds to its first token, and to each of its tokens."""
        self.answered += 1
        self.first_seconds.append(first)
        self.token_seconds.append(per_token)

    def fail(self) -> None:
        """One request was not answered."""
        self.failed += 1

    def put_back(self) -> None:
        """One request could not be answered by anybody: it does not count as given."""
        self.begun -= 1

    def give_up(self) -> None:
        """The client of one request did not wait for its answer."""
        self.given_up += 1

    @property
    def requests(self) -> int:
        """Requests that it answered, or failed to."""
        return self.answered + self.failed


def goes_to_new(number: int, share: float) -> bool:
    """Whether the request of this number, counted from 0, goes to the new version.

    Of the first n requests, floor(n * share) do: the share holds at any moment, by no chance.
    """
    return math.floor((number + 1) * share + 1e-9) > math.floor(number * share + 1e-9)


def decide(
    policy: SwitchPolicy, old: Answered, new: Answered, pairs: Sequence[float], seconds: float, scores: bool = True
) -> SwitchVerdict | None:
    """What came of a switch whose new version was first asked so many seconds ago; None while that is not known.

    `pairs` are the differences, new minus old, of the bits per byte of the texts that both have predicted; `scores`
    says whether the versions can be asked for that at all.
    """
    figures = _figures(old, new, pairs)
    late = seconds >= policy.patience_seconds
    findings = (_latency(policy, old, new), _quality(policy, pairs))
    faults = (_errors(policy, old, new), *(finding.fault for finding in findings), _silence(new, late))
    if fault := next(filter(None, faults), ""):
        return SwitchVerdict("back", fault, figures)
    if any(finding.doubt for finding in findings):
        return None
    enough = new.answered >= policy.least_requests and (old.requests >= policy.least_requests or late)
    if enough and (len(pairs) >= LEAST_PAIRS or not scores or late):
        return SwitchVerdict("all", f"nothing speaks against it after {new.answered} answers", figures)
    return None


def waits_for(policy: SwitchPolicy, old: Answered, new: Answered, pairs: Sequence[float]) -> str:
    """What a switch without a verdict waits for, in the same words until something else is missing."""
    if not new.begun:
        return "on trial: no request has reached it yet"
    if doubts := [finding.doubt for finding in (_latency(policy, old, new), _quality(policy, pairs)) if finding.doubt]:
        return f"on trial until more answers tell whether {' and '.join(doubts)}"
    return f"on trial until it has given {policy.least_requests} answers and is compared"


def _errors(policy: SwitchPolicy, old: Answered, new: Answered) -> str:
    """Surely more requests without an answer than before.

    People go away from good answers, too: their going counts only among many requests, and beside how often they do
    so from the version before.
    """
    margin = policy.error_margin
    if _surely_more(new.failed, new.requests, old.failed, old.requests, margin):
        return f"{new.failed} of {new.requests} requests failed, {_before(old.failed, old.requests, margin)}"
    none, all = new.failed + new.given_up, new.requests + new.given_up
    old_none, old_all = old.failed + old.given_up, old.requests + old.given_up
    if all >= policy.least_requests and _surely_more(none, all, old_none, old_all, margin):
        finding = f"{none} of {all} requests failed or were given up before an answer came"
        return f"{finding}, {_before(old_none, old_all, margin)}"
    return ""


def _before(none: int, all: int, margin: float) -> str:
    return f"before it {none} of {all}: more than {margin:.1%} above"


def _surely_more(new: int, of_new: int, old: int, of_old: int, margin: float) -> bool:
    """By the lower bound of Wilson's interval (JASA 22, 1927); one request alone, which may be any, is never sure."""
    return new > 1 and _wilson_low(new, of_new) > (old / of_old if of_old else 0.0) + margin


def _silence(new: Answered, late: bool) -> str:
    if late and new.begun and not new.answered:
        return f"it has answered none of the {new.begun} requests that it was given"
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
        was, now = statistics.median(before), statistics.median(after)
        if now <= was * policy.latency_ratio or now - was <= SETTLED:
            continue
        if _rank_sum(before, [seconds / policy.latency_ratio for seconds in after]) > SLOWER:
            fault = f"{what} takes {now:.3f} s, before it {was:.3f} s: more than {policy.latency_ratio:g} times"
            return RolloutFinding(fault=fault)
        doubt = doubt or f"{what} takes more than {policy.latency_ratio:g} times as long"
    return RolloutFinding(doubt=doubt)


def _rank_sum(some: Sequence[float], others: Sequence[float]) -> float:
    """By how many standard errors the others are larger (Mann, Whitney, Annals of Mathematical Statistics 18, 1947)."""
    ordered, count, number = sorted(some), len(some), len(others)
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
    return RolloutFinding(doubt="it predicts what people write worse" if seems else "")


def _mean(pairs: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error."""
    return statistics.fmean(pairs), statistics.stdev(pairs) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.inf


def _figures(old: Answered, new: Answered, pairs: Sequence[float]) -> Mapping[str, float]:
    figures: dict[str, float] = {}
    for name, answered in (("old", old), ("new", new)):
        figures[f"{name}_requests"], figures[f"{name}_failed"] = answered.requests, answered.failed
        figures[f"{name}_given_up"] = answered.given_up
        for what, seconds in (("first", answered.first_seconds), ("token", answered.token_seconds)):
            if seconds:
                figures[f"{name}_{what}_seconds"] = round(statistics.median(seconds), 6)
    if len(pairs) > 1:
        mean, error = _mean(pairs)
        figures |= {"bits_per_byte_worse": round(mean, 6), "bits_per_byte_error": round(error, 6)}
        figures["compared_texts"] = len(pairs)
    return figures
